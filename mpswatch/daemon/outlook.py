"""Whether sweeps will run, said anew when it changes: in the log, on the page, to systemd."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mpswatch.daemon.hold import hold
from mpswatch.daemon.parts import Parts
from mpswatch.daemon.said import Said
from mpswatch.daemon.systemd import Notifier
from mpswatch.daemon.verdict import verdict
from mpswatch.documents import PollSnapshot
from mpswatch.sweep.circumstances import available_memory, lock_holders
from mpswatch.sweep.permit import LockHolder, Refusal


class Outlook:
    """Holds the last verdict. `client` is what the check of the client's interpreter found, None until it did."""

    def __init__(self, *, notifier: Notifier, last_fault_age: Callable[[str], float | None], log: Any) -> None:  # noqa: ANN401 - structlog's loggers are proxies
        self.client: Refusal | str | None = None
        self.text = "not looked yet"
        self._good = False
        self._notifier = notifier
        self._last_fault_age = last_fault_age
        self._log = log
        self._said = Said()

    def consider(self, parts: Parts, snapshot: PollSnapshot | None, *, paused: bool, sweeping: bool) -> bool:
        """Judge anew; True when sweeps would run now and would not have run before."""
        if snapshot is None or self.client is None:
            return False
        held = hold(parts.config.sweep, paused=paused, asked_for=False, now=datetime.now(UTC))
        said = verdict(
            parts,
            snapshot,
            held=held,
            client=self.client if isinstance(self.client, Refusal) else None,
            last_fault_age=self._last_fault_age,
            # while we sweep, the lock is our own client's
            lock_holders=() if sweeping else _lock_holders(parts),
            available_memory=available_memory(Path("/proc/meminfo")),
        )
        self.text = str(said)
        if self._said.is_new("verdict", str(said.refusals[0][1].reason) if said.refusals else "good"):
            (self._log.info if said.good else self._log.warning)(self.text)
            self._notifier.status(self.text)
        before, self._good = self._good, said.good
        return said.good and not before


def _lock_holders(parts: Parts) -> tuple[LockHolder, ...]:
    return tuple(
        holder for address in parts.addresses for holder in lock_holders(parts.processes, address.pipe_directory)
    )
