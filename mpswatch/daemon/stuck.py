"""Measuring clients that did not leave when asked: published while they are there, after a restart too, no longer."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from mpswatch.documents import Event
from mpswatch.latest import Latest
from mpswatch.proc import Processes, ProcessGone

Place = tuple[str, str]
"""A control daemon's name, and a GPU."""

_ROUNDED = timedelta(seconds=1)
"""A process's start is known in clock ticks since a boot whose own time is rounded."""


class StuckClients:
    """Keeps what `latest` says of them true. A process that cannot be seen here stays published until the next run."""

    def __init__(self, latest: Latest, processes: Processes) -> None:
        self._latest = latest
        self._processes = processes
        self._started: dict[int, int] = {}

    def note(self, event: Event) -> None:
        """Take a `client_stuck` event while it happens, from whatever thread: the process is there."""
        for pid in _pids(event):
            ticks = self._processes.start_ticks(pid)
            if ticks is not None:
                self._started[pid] = ticks

    def recall(self, events: Iterable[Event], *, now: datetime) -> None:
        """Take the `client_stuck` events of earlier processes: whoever of them is still there is published."""
        there: dict[Place, set[int]] = {}
        simulated = self._latest.view().simulated
        for event in (event for event in events if event.simulated == simulated):
            place = (event.daemon or "", event.gpu_uuid or "")
            there.setdefault(place, set()).update(pid for pid in _pids(event) if self._is_from_before(pid, event, now))
        for (daemon, gpu_uuid), pids in there.items():
            if pids:
                self._latest.set_stuck(daemon, gpu_uuid, sorted(pids))

    def look(self) -> None:
        """Take back whoever is gone."""
        for (daemon, gpu_uuid), pids in self._latest.view().stuck.items():
            there = tuple(pid for pid in pids if not self._is_gone(pid))
            if there != pids:
                self._latest.set_stuck(daemon, gpu_uuid, there)

    def _is_gone(self, pid: int) -> bool:
        started = self._started.get(pid)
        return started is not None and self._processes.start_ticks(pid) != started

    def _is_from_before(self, pid: int, event: Event, now: datetime) -> bool:
        """Whether it is the process that the event is about, and not a later one with its number."""
        try:
            facts = self._processes.facts(pid)
        except ProcessGone:
            return False
        age = self._processes.age_seconds(facts)
        if age is None or now - timedelta(seconds=age) > event.at + _ROUNDED:
            return False
        self._started[pid] = facts.start_ticks
        return True


def _pids(event: Event) -> list[int]:
    return [pid for pid in event.details.get("pids", ()) if isinstance(pid, int)]
