"""What appears in a directory of documents: each file once, whenever it began and whoever wrote it."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path

_SURE = 2.0
"""Seconds until a directory's time of change is one: another file may come within the same tick of its clock."""


class Appeared:
    """Tells the names below `directory` that were not there at the last look; `names` lists them, in any order.

    By name and not by time, because a run that began before the newest one may be written after it, and because a
    clock may be set back. Not thread-safe.
    """

    def __init__(self, directory: Path, names: Callable[[], Iterable[str]]) -> None:
        self._directory = directory
        self._names = names
        self._known = array("q")  # hashes, 8 bytes a name: an archive may hold 100,000
        self._changed_at: int | None = None

    def look(self) -> list[str] | None:
        """Name what appeared since the last call (all, at the first), in the order of `names`.

        None, after one stat, where nothing can have changed. Raises OSError, and what `names` raises, where the
        directory cannot be looked at; what appears meanwhile is told once it can be.
        """
        known_at, self._changed_at = self._changed_at, None
        changed_at = self._directory.stat().st_mtime_ns
        if changed_at == known_at:
            self._changed_at = known_at
            return None
        before, names = set(self._known), list(self._names())
        self._known = array("q", map(hash, names))
        if abs(time.time() - changed_at / 1e9) > _SURE:
            self._changed_at = changed_at
        return [name for name in names if hash(name) not in before]
