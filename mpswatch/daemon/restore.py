"""What earlier processes left on disk, read once at the start (in the keeper's thread)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from datetime import datetime

from mpswatch.archive import Archive, ArchiveError
from mpswatch.archive.interference import Interferences
from mpswatch.daemon.pause import is_paused
from mpswatch.documents import Event, EventKind, InterferenceDocument, SweepDocument
from mpswatch.journal import Journal

_EVENTS = 50
_STUCK: tuple[EventKind, ...] = ("client_stuck",)


@dataclass(frozen=True, kw_only=True)
class Restored:
    """`known` is False when the disk could not be read or written: then nothing is known about earlier starts."""

    known: bool
    runs: tuple[SweepDocument, ...] = ()
    interferences: tuple[InterferenceDocument, ...] = ()
    events: tuple[Event, ...] = ()
    stuck: tuple[Event, ...] = ()
    newest_start: datetime | None = None
    total_bytes: int | None = None
    paused: bool = False
    faults: tuple[ArchiveError, ...] = ()


def restore(archive: Archive, journal: Journal, interferences: Interferences) -> Restored:
    """Read back the newest runs and events; what cannot be read is named in `faults`, never raised."""
    faults: list[ArchiveError] = []
    try:
        archive.prepare()
        unwritable = archive.writable()
        if unwritable is not None:
            faults.append(unwritable)
        runs, unreadable = archive.latest()
        pairs, odd = interferences.latest()
        newest_run = next(archive.entries(), None)
        started = journal.newest_sweep_started()
        events = journal.read(limit=_EVENTS)
        stuck = tuple(itertools.islice(journal.of(_STUCK), _EVENTS))
        total_bytes = archive.usage()
    except ArchiveError as error:
        return Restored(known=False, faults=(*faults, error), paused=is_paused(archive.directory))
    starts = [newest_run.started if newest_run is not None else None, started.at if started is not None else None]
    return Restored(
        known=unwritable is None,
        runs=runs,
        interferences=pairs,
        events=events,
        stuck=stuck,
        newest_start=max(filter(None, starts), default=None),
        total_bytes=total_bytes,
        paused=is_paused(archive.directory),
        faults=(*faults, *unreadable, *odd),
    )
