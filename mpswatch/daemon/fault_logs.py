"""The server logs of all daemons, looked at with each poll: faults that are over before the next one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TypeAlias

from mpswatch.daemon.events import Events, Target
from mpswatch.documents import Event, Reason
from mpswatch.errors import MpswatchError
from mpswatch.mps.server_log import Faults, ServerLog
from mpswatch.poll import DaemonAddress
from mpswatch.process.watched import Watched

FaultLook: TypeAlias = Mapping[str, Faults | Reason]
"""By daemon: what its log held since the last look, or why that is not known."""

_DEADLINE = 2.0


class FaultLogs:
    """Follows one log a daemon, each in a thread of its own: a log directory that hangs takes nothing down."""

    def __init__(self, addresses: tuple[DaemonAddress, ...]) -> None:
        self._logs: dict[DaemonAddress, tuple[ServerLog, Watched] | None] = {}
        self.watch(addresses)

    def watch(self, addresses: tuple[DaemonAddress, ...]) -> None:
        """Follow the logs of these from now on, where they are followed already from where they are."""
        self._logs = {
            address: self._logs[address] if address in self._logs else _follower(address) for address in addresses
        }

    def look(self) -> FaultLook:
        found: dict[str, Faults | Reason] = {}
        for address, log in self._logs.items():
            name = address.name
            if log is None:
                found[name] = Reason.NOT_RECORDED
                continue
            follower, watched = log
            try:
                found[name] = watched.call(follower.look, _DEADLINE)
            except MpswatchError as error:
                found[name] = error.reason
        return found


def _follower(address: DaemonAddress) -> tuple[ServerLog, Watched] | None:
    if address.log_directory is None:
        return None
    return ServerLog(address.log_directory), Watched(f"server.log of {address.name}")


def faults_of(look: FaultLook, events: Events) -> list[Event]:
    """An event for each daemon whose log named new faults; `count` says how many."""
    return [
        events.event(
            "server_fault",
            f"server.log names {len(found.new)} fatal GPU error{'s' if len(found.new) > 1 else ''}: {found.new[-1]}",
            target=Target(name, ""),
            reason=Reason.SERVER_FAULT,
            count=len(found.new),
            lines=list(found.new[-5:]),
        )
        for name, found in look.items()
        if isinstance(found, Faults) and found.new
    ]


def known_fault_age(events: Iterable[Event], logs: FaultLook, daemon: str) -> float | None:
    """Seconds since the newest fault of that daemon's server that journal or log know of; for one look, at a start."""
    now = datetime.now(UTC)
    ages = [
        max(0.0, (now - event.at).total_seconds())
        for event in events
        if event.kind == "server_fault" and event.daemon == daemon
    ]
    found = logs.get(daemon)
    if isinstance(found, Faults) and found.newest_age is not None:
        ages.append(found.newest_age)
    return min(ages, default=None)
