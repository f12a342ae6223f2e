"""What other processes do on our disk: a pause, a run from the command line. Looked at in the keeper's thread."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from mpswatch.archive import Archive, ArchiveError
from mpswatch.archive.appeared import Appeared
from mpswatch.archive.interference import Interferences
from mpswatch.daemon.pause import is_paused
from mpswatch.documents import InterferenceDocument, SweepDocument

_MOST = 10
"""Documents read at one look: more than ten in the time of a poll were copied here, and only the newest are news."""

D = TypeVar("D", SweepDocument, InterferenceDocument)


class DiskLook(NamedTuple):
    """`runs` and `interferences` are those that appeared since the last look, at most ten of each, ours among them.

    `unreadable` are those that appeared and could not be read. `total_bytes` is the archive's size where it may have
    changed, None where it cannot be looked through; `measured` says that it was tried.
    """

    paused: bool
    runs: tuple[SweepDocument, ...] = ()
    interferences: tuple[InterferenceDocument, ...] = ()
    unreadable: tuple[ArchiveError, ...] = ()
    measured: bool = False
    total_bytes: int | None = None


class Disk:
    """Looks at the state directory again and again; what is there when it is made is no news.

    Not thread-safe: the keeper's thread alone makes it and calls `look`.
    """

    def __init__(self, archive: Archive, interferences: Interferences) -> None:
        self._archive = archive
        self._interferences = interferences
        self._runs_appeared = Appeared(archive.runs, archive.names)
        self._pairs_appeared = Appeared(interferences.directory, interferences.names)
        for appeared in (self._runs_appeared, self._pairs_appeared):
            with contextlib.suppress(OSError, ArchiveError):  # where nothing can be seen now, all of it will be news
                appeared.look()

    def look(self) -> DiskLook:
        """Say what changed: one stat a directory where nothing did."""
        total_bytes = None
        try:
            runs = self._runs_appeared.look()
            measured = runs is not None
            if measured:
                total_bytes = self._archive.usage()
        except (OSError, ArchiveError):  # removed, or its disk is gone
            runs, measured = None, True
        pairs = None
        with contextlib.suppress(OSError, ArchiveError):  # where nobody measures interference there is no directory
            pairs = self._pairs_appeared.look()
        unreadable: list[ArchiveError] = []
        return DiskLook(
            paused=is_paused(self._archive.directory),
            runs=_read(self._archive.read, self._archive.runs, runs or (), unreadable),
            interferences=_read(self._interferences.read, self._interferences.directory, pairs or (), unreadable),
            unreadable=tuple(unreadable),
            measured=measured,
            total_bytes=total_bytes,
        )


def _read(
    read: Callable[[Path], D], directory: Path, newest_first: Sequence[str], unreadable: list[ArchiveError]
) -> tuple[D, ...]:
    found = []
    for name in newest_first[:_MOST]:
        try:
            found.append(read(directory / name))
        except ArchiveError as error:
            unreadable.append(error)
    return tuple(found)
