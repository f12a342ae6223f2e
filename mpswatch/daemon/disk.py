"""What other processes do on our disk: a pause, a run from the command line. Looked at in the keeper's thread."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

from mpswatch.archive import Archive, ArchiveError, RunEntry
from mpswatch.archive.interference import Interferences
from mpswatch.daemon.pause import is_paused
from mpswatch.documents import InterferenceDocument, SweepDocument

_MOST_RUNS = 10


class DiskLook(NamedTuple):
    """`runs` are those that appeared since the last look, the newest first; at most ten of them are read.

    `interferences` are the newest of each GPU and daemon, where one appeared. `total_bytes` is the archive's size
    where it may have changed, None where it cannot be looked through; `measured` says that it was tried.
    """

    paused: bool
    runs: tuple[SweepDocument, ...] = ()
    interferences: tuple[InterferenceDocument, ...] = ()
    measured: bool = False
    total_bytes: int | None = None


class Disk:
    """Looks at the state directory again and again. Not thread-safe: the keeper's thread alone calls `look`."""

    def __init__(self, archive: Archive, newest: RunEntry | None, interferences: Interferences | None = None) -> None:
        self._archive = archive
        self._interferences = interferences
        self._newest_interference: Path | None = None
        with contextlib.suppress(OSError):  # an archive that cannot be read is no reason to do without the rest
            self._newest_interference = self._newest_path()
        self._newest = newest
        self._seen: int | None = None

    def look(self) -> DiskLook:
        """One stat a directory where nothing changed; what cannot be read is left out."""
        return self._look_at_runs()._replace(interferences=self._look_at_interferences())

    def _newest_path(self) -> Path | None:
        return next(self._interferences.paths(), None) if self._interferences is not None else None

    def _look_at_interferences(self) -> tuple[InterferenceDocument, ...]:
        try:
            newest = self._newest_path()
        except OSError:
            return ()
        if self._interferences is None or newest == self._newest_interference:
            return ()
        self._newest_interference = newest
        return self._interferences.latest()[0]

    def _look_at_runs(self) -> DiskLook:
        paused = is_paused(self._archive.directory)
        try:
            changed = self._archive.runs.stat().st_mtime_ns
        except OSError:  # removed, or its disk is gone
            self._seen = None
            return DiskLook(paused, measured=True)
        if changed == self._seen:
            return DiskLook(paused)
        try:
            entries = self._archive.newer_than(self._newest)
            total_bytes = self._archive.usage()
        except ArchiveError:
            self._seen = None
            return DiskLook(paused, measured=True)
        self._seen = changed
        if entries:
            self._newest = entries[0]
        runs = tuple(filter(None, map(self._read, entries[:_MOST_RUNS])))
        return DiskLook(paused, runs, measured=True, total_bytes=total_bytes)

    def _read(self, entry: RunEntry) -> SweepDocument | None:
        try:
            return self._archive.read(entry.path)
        except ArchiveError:
            return None
