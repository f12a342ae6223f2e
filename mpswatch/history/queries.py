"""What the index is asked: series, runs, files that are none. A row is believed only while its file is as it was."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from mpswatch.archive import Archive
from mpswatch.history.facts import RunFacts, Series
from mpswatch.history.rows import UNSETTLED, BrokenIndexError, decoded, key_of, series_of_key, stamp, time_of


class StaleIndexError(Exception):
    """A file is not what it was when its row was made: every file is looked at. Never leaves this room."""


class Unreadable(NamedTuple):
    """A file that is named as a run and is none that this version reads; `problem` says what is wrong with it."""

    path: Path
    problem: str


class Index:
    """An index that is up to date, opened by `open_index`. For one thread; `close` it."""

    def __init__(self, archive: Archive, connection: sqlite3.Connection, release: Callable[[], None]) -> None:
        self._archive = archive
        self._db = connection
        self._release = release

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()
        self._release()

    def count(self) -> int:
        """So many runs can be read."""
        return int(self._db.execute("SELECT count(*) FROM runs WHERE problem IS NULL").fetchone()[0])

    def unreadable(self) -> tuple[Unreadable, ...]:
        """Name the files that could not be read, by name."""
        rows = self._db.execute("SELECT name, size, changed, problem FROM runs WHERE problem IS NOT NULL ORDER BY name")
        found = []
        for name, size, changed, problem in rows:
            self._believe(name, size, changed)
            found.append(Unreadable(self._archive.runs / name, problem))
        return tuple(found)

    def series(
        self, *, gpu: str | None = None, daemon: str | None = None, plan: str | None = None
    ) -> tuple[tuple[Series, int, datetime], ...]:
        """Name every series (whose GPU begins with `gpu`) with its number of runs and its newest start."""
        rows = self._db.execute(
            "SELECT key, count(*), max(started) FROM series JOIN runs ON runs.series = series.id"
            " WHERE substr(gpu, 1, length(?1)) = ?1 AND (?2 IS NULL OR daemon = ?2) AND (?3 IS NULL OR plan = ?3)"
            " GROUP BY series.id ORDER BY max(started) DESC",
            (gpu or "", daemon, plan),
        )
        return tuple((series_of_key(key), count, time_of(newest)) for key, count, newest in rows)

    def runs(
        self,
        series: Series,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        newest: int | None = None,
    ) -> Iterator[RunFacts]:
        """Give the runs of one series, oldest first; only the `newest` so many of them, where given."""
        sql = (
            "SELECT name, size, changed, run_id, started, checksum, facts FROM runs"
            " WHERE series = (SELECT id FROM series WHERE key = ?) AND started >= ? AND started < ?"
        )
        values = (key_of(series), stamp(since, -(1 << 62)), stamp(until, 1 << 62))
        if newest is None:
            rows: Iterable[tuple[str, int, int, str, int, int, bytes]] = self._db.execute(
                sql + " ORDER BY started, name", values
            )
        else:
            limited = sql + " ORDER BY started DESC, name DESC LIMIT ?"
            rows = self._db.execute(limited, (*values, newest)).fetchall()[::-1]
        last: tuple[str, int] | None = None
        for name, size, changed, run_id, started, checksum, blob in rows:
            self._believe(name, size, changed)
            if run_id and (run_id, started) == last:
                continue  # one run in two files (compressed and not)
            last = (run_id, started)
            facts = decoded(blob, checksum, series)
            if (facts.run_id, stamp(facts.started, 0)) != (run_id, started):
                raise BrokenIndexError(f"the row of {run_id!r} contradicts itself")
            yield facts

    def find(self, beginning: str) -> tuple[tuple[str, Path], ...]:
        """Name the runs whose id begins so (at most 10) as (run id, file): that of just this id, then newest first."""
        rows = self._db.execute(
            "SELECT run_id, name FROM runs WHERE problem IS NULL AND run_id >= ?1 AND run_id < ?1 || char(1114111)"
            " ORDER BY run_id = ?1 DESC, started DESC LIMIT 10",
            (beginning,),
        )
        return tuple((run_id, self._archive.runs / name) for run_id, name in rows)

    def _believe(self, name: str, size: int, changed: int) -> None:
        if changed == UNSETTLED:
            return  # read at this very opening
        try:
            status = os.stat(f"{self._archive.runs}/{name}", follow_symlinks=False)  # noqa: PTH116  # 25,000 times a call
        except OSError:
            raise StaleIndexError(name) from None
        if (status.st_size, status.st_mtime_ns) != (size, changed):
            raise StaleIndexError(name)
