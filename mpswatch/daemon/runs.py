"""A run, or an interference measurement, with the journal's lines about it: for its page. Reads the disk."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from mpswatch.archive import Archive
from mpswatch.archive.interference import Interferences
from mpswatch.documents import Event
from mpswatch.history import read_with_index
from mpswatch.journal import Journal
from mpswatch.web import FoundInterference, FoundRun

_MOST_LINES = 200
_AROUND = timedelta(seconds=5)


def find_run(archive: Archive, journal: Journal, run_id: str) -> FoundRun | None:
    """Read the run of exactly this id; None when there is none. Raises `ArchiveError`."""
    found = read_with_index(archive, lambda index: [path for name, path in index.find(run_id) if name == run_id])
    if not found:
        return None
    run = archive.read(found[0])
    daemon = run.mps.daemon if run.mps is not None else None
    first, last = run.started_at or run.recorded_at, run.finished_at or run.recorded_at
    return FoundRun(run, tuple(_about(run_id, daemon, first, last, journal.read())))


def find_interference(interferences: Interferences, journal: Journal, run_id: str) -> FoundInterference | None:
    """Read the measurement of exactly this id; None when there is none. Raises `ArchiveError`."""
    path = interferences.find(run_id)
    if path is None:
        return None
    document = interferences.read(path)
    daemon = document.mps.daemon if document.mps is not None else None
    events = _about(run_id, daemon, document.started_at, document.finished_at, journal.read())
    return FoundInterference(document, tuple(events))


def _about(run_id: str, daemon: str | None, first: datetime, last: datetime, events: Iterable[Event]) -> list[Event]:
    """The lines that name the run, and those of its daemon (or of none) while it ran, the newest of them at most."""
    return [
        event
        for event in events
        if event.run_id == run_id
        or (event.daemon in (None, daemon) and event.run_id is None and first - _AROUND <= event.at <= last + _AROUND)
    ][-_MOST_LINES:]
