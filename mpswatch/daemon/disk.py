"""What other processes do on our disk: a pause, a run from the command line. Looked at in the keeper's thread."""

from __future__ import annotations

from typing import NamedTuple

from mpswatch.archive import Archive, ArchiveError, RunEntry
from mpswatch.daemon.pause import is_paused
from mpswatch.documents import SweepDocument

_MOST_RUNS = 10


class DiskLook(NamedTuple):
    """`runs` are those that appeared since the last look, the newest first; at most ten of them are read."""

    paused: bool
    runs: tuple[SweepDocument, ...] = ()


class Disk:
    """Looks at the state directory again and again. Not thread-safe: the keeper's thread alone calls `look`."""

    def __init__(self, archive: Archive, newest: RunEntry | None) -> None:
        self._archive = archive
        self._newest = newest
        self._seen: int | None = None

    def look(self) -> DiskLook:
        """One stat where nothing changed; what cannot be read is left out."""
        paused = is_paused(self._archive.directory)
        try:
            changed = self._archive.runs.stat().st_mtime_ns
        except OSError:
            return DiskLook(paused)
        if changed == self._seen:
            return DiskLook(paused)
        try:
            entries = self._archive.newer_than(self._newest)
        except ArchiveError:
            return DiskLook(paused)
        self._seen = changed
        if entries:
            self._newest = entries[0]
        return DiskLook(paused, tuple(filter(None, map(self._read, entries[:_MOST_RUNS]))))

    def _read(self, entry: RunEntry) -> SweepDocument | None:
        try:
            return self._archive.read(entry.path)
        except ArchiveError:
            return None
