"""One look at one control daemon: one connection, and a second one only when the server list is another."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mpswatch.documents import DaemonLook, Envelope, Reason, ServerLook, SourceLook, State
from mpswatch.errors import MpswatchError
from mpswatch.mps import asking_3, commands, grammar, protocol
from mpswatch.mps.devices import Device, numbered, served
from mpswatch.mps.discovery import devices_visible_to
from mpswatch.mps.limits import default_memory, set_for_an_unknown_device
from mpswatch.mps.lines import OtherProtocol, ReplyError
from mpswatch.mps.program import DaemonAbsent, environment_of, said_by
from mpswatch.mps.servers import server_look
from mpswatch.proc import Processes

SOURCE = "nvidia-cuda-mps-control"
MOST_SERVERS = 64
"""Servers asked about on one connection; a control daemon runs one, and a few while it changes over."""


@dataclass(frozen=True, slots=True)
class _Said:
    """What a daemon said, in either protocol; `asked` are the devices whose limits were asked, None for not at all."""

    protocol: str
    servers: tuple[ServerLook, ...]
    evidence: dict[str, Any]
    defaults: grammar.Limits
    asked: tuple[Device, ...] | None


def is_rehearsal(pipe_directory: Path) -> bool:
    """Whether this is the pipe directory of a rehearsal stack: the socket alone marks it."""
    return protocol.is_socket(pipe_directory / "rehearsal")


def now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


def look(
    *,
    name: str,
    pipe_directory: Path,
    known_servers: Sequence[int],
    program: str,
    deadline: float,
    processes: Processes,
    with_contexts: bool = True,
    gpus: Sequence[str] | None = None,
    limits_due: bool = False,
    clock: Callable[[], datetime] = now,
) -> tuple[DaemonLook, SourceLook]:
    """Ask one control daemon everything, within `deadline` seconds in all. Whatever goes wrong is in the result.

    `known_servers` are those of the last look: about them it asks on the first connection. Without
    `with_contexts` the table of contexts is left out (a sweep's own looks). Limits are asked for the `gpus` (uuids)
    that the daemon serves when they are due, and when the servers are others than those known.
    """
    began = time.monotonic()
    simulated = is_rehearsal(pipe_directory)
    session, session_reason = _our_session(pipe_directory, processes)
    unknown: dict[str, Reason] = {} if session_reason is None else {"our_session": session_reason}
    daemon = protocol.daemon_process(pipe_directory, processes)
    visible = devices_visible_to(*daemon, processes) if daemon and with_contexts else None
    devices = None if gpus is None else served(visible, gpus)
    started_for_3 = protocol.started_for_3(*daemon, processes) if daemon else None
    asking = _Asking(pipe_directory, program, began + deadline, processes, devices=devices, simulated=simulated)
    try:
        said = asking.whichever_protocol(
            started_for_3, known_servers, with_contexts=with_contexts, limits_due=limits_due
        )
        if session is None:  # a sweep may have begun while the daemon took its time
            session, _ = _our_session(pipe_directory, processes)
    except MpswatchError as found:
        error = _told_apart(found, pipe_directory)
        up = _up(error)
        unknown |= dict.fromkeys(("default_active_thread_percentage", "default_memory_limits"), error.reason)
        spoken = error.protocol if isinstance(error, OtherProtocol) else None
        if spoken is None:
            unknown["protocol"] = error.reason
        look = DaemonLook(
            name=name,
            pipe_directory=str(pipe_directory),
            up=up,
            up_reason=None if up else error.reason,
            protocol=spoken,
            servers=_envelope(None, clock(), "unknown", {"detail": error.detail}, error.reason),
            our_session=session,
            unknown=unknown,
        )
        return look, _source(name, began, error)
    percentage = said.defaults.active_thread_percentage
    if percentage is None:
        unknown["default_active_thread_percentage"] = Reason.NOT_SUPPORTED
    memory, reason = default_memory(said.defaults, said.asked, protocol=said.protocol)
    if reason is not None:
        unknown["default_memory_limits"] = reason
    at = clock()
    state: State = "simulated" if simulated else "measured"
    look = DaemonLook(
        name=name,
        pipe_directory=str(pipe_directory),
        up=True,
        protocol=said.protocol,
        default_active_thread_percentage=percentage,
        servers=_envelope(said.servers, at, state, said.evidence, None),
        our_session=session,
        visible_devices=visible,
        default_memory_limits=memory,
        limits_asked_at=None if said.asked is None else at,
        unknown=unknown,
    )
    return look, _source(name, began, None)


class _Asking:
    """The questions of one look, all of them before the clock is `until`."""

    def __init__(
        self,
        pipe_directory: Path,
        program: str,
        until: float,
        processes: Processes,
        *,
        devices: tuple[Device, ...] | None,
        simulated: bool,
    ) -> None:
        self._pipe_directory = pipe_directory
        self._program = program
        self._until = until
        self._processes = processes
        self._devices = devices
        self._simulated = simulated

    def whichever_protocol(
        self, shown: str | None, known_servers: Sequence[int], *, with_contexts: bool, limits_due: bool
    ) -> _Said:
        """A daemon that was started for protocol 3 (`shown`) is asked in it, and one that shows it only now."""
        if shown is None:
            try:
                said = self._protocol_2(known_servers, with_contexts=with_contexts, limits_due=limits_due)
            except ReplyError:
                shown = protocol.folder_of_a_server(self._pipe_directory)
                if shown is None:
                    raise
            else:
                shown = None if said.servers else protocol.folder_of_a_server(self._pipe_directory)
                if shown is None:
                    return said
        return self._protocol_3(shown)

    def _protocol_2(self, known_servers: Sequence[int], *, with_contexts: bool, limits_due: bool) -> _Said:
        servers, connections = tuple(known_servers)[:MOST_SERVERS], 1
        asked = self._devices if limits_due else None
        reply = self._ask(servers, asked, with_contexts=with_contexts)
        if set(reply.servers[:MOST_SERVERS]) != set(servers):
            servers, connections, asked = reply.servers[:MOST_SERVERS], 2, self._devices
            reply = self._ask(servers, asked, with_contexts=with_contexts)
        if set_for_an_unknown_device(reply.defaults, asked):
            connections, asked = connections + 1, self._numbered(asked or ())
        looks = tuple(
            server_look(
                pid,
                reply=reply.about.get(pid),
                contexts=reply.contexts,
                contexts_reason=reply.contexts_reason,
                processes=self._processes,
                simulated=self._simulated,
            )
            for pid in reply.servers
        )
        evidence = {"basis": "the daemon's own lists", "connections": connections}
        return _Said("2", looks, evidence, reply.defaults, asked)

    def _ask(self, servers: Sequence[int], devices: tuple[Device, ...] | None, *, with_contexts: bool) -> grammar.Reply:
        said = self._said(commands.script(servers, with_contexts=with_contexts, devices=devices))
        return grammar.parse(said, servers=servers, with_contexts=with_contexts, devices=devices)

    def _said(self, script: bytes) -> bytes:
        environment = environment_of(self._pipe_directory)
        return said_by(self._program, until=self._until, environment=environment, script=script)

    def _numbered(self, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        """`devices` as the daemon numbers them: asked only when it matters, for control.log keeps the whole table."""
        try:
            return numbered(devices, self._said(commands.command("device_query")))
        except MpswatchError:  # a daemon that does not tell: whose limit it is stays unknown, and all else is known
            return devices

    def _protocol_3(self, shown: str) -> _Said:
        servers, not_started = asking_3.servers_of(
            self._pipe_directory,
            self._program,
            self._until,
            processes=self._processes,
            simulated=self._simulated,
            shown=shown,
        )
        evidence = {"basis": "the daemon's own lists", "protocol_3": shown, "servers_not_started": list(not_started)}
        return _Said("3", servers, evidence, grammar.Limits(None, None), None)


def _told_apart(error: MpswatchError, pipe_directory: Path) -> MpswatchError:
    """Whether "no daemon" is really "may not look"."""
    if isinstance(error, DaemonAbsent):
        try:
            (pipe_directory / "control").stat()
        except PermissionError:
            return MpswatchError(Reason.PERMISSION, f"this user may not enter the pipe directory {pipe_directory}")
        except OSError:
            return error
    return error


def _up(error: MpswatchError) -> bool | None:
    if isinstance(error, OtherProtocol) or error.reason is Reason.SERVER_CHANGED:
        return True
    return False if isinstance(error, DaemonAbsent) else None


def _our_session(pipe_directory: Path, processes: Processes) -> tuple[int | None, Reason | None]:
    """The session of the measuring client that holds the pipe directory's lock (its launcher leads that session)."""
    try:
        holders = processes.flock_holders(pipe_directory)
    except PermissionError:
        return None, Reason.PERMISSION
    except (OSError, ValueError):
        return None, Reason.SOURCE_FAILED if pipe_directory.exists() else None
    if len(holders) > 1:
        return None, Reason.IDENTITY_AMBIGUOUS
    return (holders[0] if holders else None), None


def _envelope(
    value: tuple[ServerLook, ...] | None,
    measured_at: datetime,
    state: State,
    evidence: dict[str, Any],
    reason: Reason | None,
) -> Envelope[tuple[ServerLook, ...]]:
    return Envelope(
        value=value, state=state, source=SOURCE, measured_at=measured_at, evidence=evidence, unknown_reason=reason
    )


def _source(name: str, began: float, error: MpswatchError | None) -> SourceLook:
    return SourceLook(
        source="mps",
        daemon=name,
        success=error is None,
        duration_seconds=time.monotonic() - began,
        reason=error.reason if error else None,
        detail=error.detail if error else None,
    )
