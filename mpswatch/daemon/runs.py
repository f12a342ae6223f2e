"""A run of the archive with the journal's lines about it: for its page. Reads the disk; not for the loop's thread."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from mpswatch.archive import Archive
from mpswatch.documents import Event, SweepDocument
from mpswatch.history import read_with_index
from mpswatch.journal import Journal
from mpswatch.web import FoundRun

_MOST_LINES = 200
_AROUND = timedelta(seconds=5)


def find_run(archive: Archive, journal: Journal, run_id: str) -> FoundRun | None:
    """Read the run of exactly this id; None when there is none. Raises `ArchiveError`."""
    found = read_with_index(archive, lambda index: [path for name, path in index.find(run_id) if name == run_id])
    if not found:
        return None
    document = archive.read(found[0])
    return FoundRun(document, tuple(_about(document, journal.read())))


def _about(run: SweepDocument, events: Iterable[Event]) -> list[Event]:
    """The lines that name the run, and those of its daemon (or of none) while it ran, the newest of them at most."""
    daemon = run.mps.daemon if run.mps is not None else None
    first, last = run.started_at or run.recorded_at, run.finished_at or run.recorded_at
    return [
        event
        for event in events
        if event.run_id == run.run_id
        or (event.daemon in (None, daemon) and event.run_id is None and first - _AROUND <= event.at <= last + _AROUND)
    ][-_MOST_LINES:]
