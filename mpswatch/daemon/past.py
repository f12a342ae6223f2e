"""What earlier processes left and what other processes do: on our disk, looked at in the keeper's thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from mpswatch.daemon.disk import Disk, DiskLook
from mpswatch.daemon.facts import Facts
from mpswatch.daemon.fault_logs import FaultLook, known_fault_age
from mpswatch.daemon.keeper import KeepingError
from mpswatch.daemon.parts import Parts
from mpswatch.daemon.restore import Restored, restore
from mpswatch.documents import Event, Reason, SweepDocument
from mpswatch.mps.server_log import Faults


class Past:
    """`restored` is None until the disk has been read; `changed` is called when it was, or a pause came or went;
    `found` gets the runs that were read back, and those that another process wrote."""

    def __init__(
        self,
        *,
        facts: Facts,
        loop: asyncio.AbstractEventLoop,
        changed: Callable[[], None],
        found: Callable[[Iterable[SweepDocument]], None],
        log: Any,  # noqa: ANN401 - structlog's loggers are proxies
    ) -> None:
        self.restored: Restored | None = None
        self.paused = False
        self._facts = facts
        self._loop = loop
        self._changed = changed
        self._found = found
        self._log = log
        self._disk: Disk | None = None
        self._faults: dict[str, float] = {}
        self._deadline = time.monotonic() + facts.keeper.deadline

    def read_back(self, parts: Parts) -> None:
        """Read runs, events and pause, once, at the start."""

        def in_the_keepers_thread() -> None:
            disk = Disk(parts.archive, parts.interferences)  # before: what appears in between is seen twice, not never
            restored = restore(parts.archive, parts.journal, parts.interferences)
            self._loop.call_soon_threadsafe(self._take, parts, restored, disk)

        self._facts.keeper.do(in_the_keepers_thread)

    def restored_by_now(self) -> Restored | None:
        """What the disk gave, None while it may still answer; one that hangs is one that nothing is known of."""
        if self.restored is None and time.monotonic() > self._deadline:
            return Restored(known=False)
        return self.restored

    def look(self) -> None:
        """Has somebody paused us, has another process swept, has a client that was stuck left after all?"""
        self._facts.stuck.look()
        disk = self._disk
        if disk is None:
            return
        try:
            self._facts.keeper.do(lambda: self._hand_over(disk.look()))
        except KeepingError as error:
            self._log.debug("the archive is not looked at", detail=error.detail)

    def note(self, events: Iterable[Event], logs: FaultLook) -> None:
        """Remember when a server had its last fault, and say whether its log can be read."""
        for name, found in logs.items():
            self._facts.latest.set_fault_log(name, found if isinstance(found, Reason) else None)
            if isinstance(found, Faults) and found.newest_age is not None:
                at = time.monotonic() - found.newest_age
                self._faults[name] = max(at, self._faults.get(name, at))
        for event in events:
            if event.kind == "server_fault" and event.daemon is not None:
                self._faults[event.daemon] = time.monotonic()

    def last_fault_age(self, daemon: str) -> float | None:
        """Seconds since the last fault of that daemon's server that is known; None when none is."""
        at = self._faults.get(daemon)
        return None if at is None else time.monotonic() - at

    def _take(self, parts: Parts, restored: Restored, disk: Disk) -> None:
        self.restored, self._disk = restored, disk
        latest, now = self._facts.latest, datetime.now(UTC)
        for fault in restored.faults:
            self._log.warning("the archive", detail=fault.detail, remedy=fault.remedy)
        latest.restore(restored.runs, now=now)
        latest.restore(restored.interferences, now=now)
        self._found(restored.runs)
        latest.remember(restored.events)
        self._facts.stuck.recall(restored.stuck, now=now)
        latest.archive_measured(restored.total_bytes)
        for address in parts.addresses:
            age = known_fault_age(restored.events, {}, address.name)
            if age is not None:
                self._faults.setdefault(address.name, time.monotonic() - age)
        self.paused = restored.paused
        latest.set_paused(self.paused)
        self._changed()

    def _hand_over(self, seen: DiskLook) -> None:
        self._loop.call_soon_threadsafe(self._see, seen)

    def _see(self, seen: DiskLook) -> None:
        for error in seen.unreadable:
            self._log.warning("what another process wrote is not published", detail=error.detail, remedy=error.remedy)
        if seen.measured:
            self._facts.latest.archive_measured(seen.total_bytes)
        if seen.interferences:
            self._facts.latest.restore(seen.interferences, now=datetime.now(UTC))
        taken = self._facts.latest.restore(seen.runs, now=datetime.now(UTC)) if seen.runs else ()
        if taken:
            self._log.info("another process has swept", runs=len(taken))
            self._found(taken)
        if seen.paused != self.paused:
            self.paused = seen.paused
            message = "sweeps are paused" if self.paused else "sweeps run again"
            self._log.info(message)
            self._facts.event("paused" if self.paused else "resumed", message)
            self._changed()
