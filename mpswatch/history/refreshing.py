"""The index is made to say what the directory says: new runs are read, rows of files that have gone are taken out."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from mpswatch.archive import Archive, ArchiveError, read_run
from mpswatch.archive.files import named_errors
from mpswatch.archive.names import is_run_name
from mpswatch.history.facts import Series, facts_of
from mpswatch.history.rows import FORMAT, TABLES, UNSETTLED, BrokenIndexError, checksum_of, encoded, key_of, stamp

UNSETTLED_NS = 2_000_000_000
BATCH = 500

Progress: TypeAlias = Callable[[int, int], None]


def refresh(archive: Archive, db: sqlite3.Connection, every_file: bool, progress: Progress) -> None:  # noqa: FBT001
    """Make the index say what the directory says."""
    if db.execute("PRAGMA user_version").fetchone()[0] != FORMAT:
        if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise BrokenIndexError("an index of another format")
        db.executescript(f"BEGIN IMMEDIATE; {TABLES} PRAGMA user_version = {FORMAT}; COMMIT;")
    with named_errors("list", archive.runs):
        changed = archive.runs.stat().st_mtime_ns
        same = not every_file and db.execute("SELECT changed FROM directory").fetchall() == [(changed,)]
        there = None if same else sorted(name for name in os.listdir(archive.runs) if name.endswith(_ENDINGS))  # noqa: PTH208  # names alone
    settled = _settled(changed)
    unsettled = [row[0] for row in db.execute("SELECT name FROM runs WHERE changed < 0")]
    if there is None and not unsettled:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        news, gone = (unsettled, []) if there is None else _differences(db, there, archive if every_file else None)
        if there is not None and not every_file:
            news += [name for name in unsettled if name not in gone]
        del there
        db.execute("DELETE FROM directory")
        db.executemany("DELETE FROM runs WHERE name = ?", ((name,) for name in gone))
        known: dict[Series, int] = {}
        for done, name in enumerate(news):
            if done % BATCH == 0:
                progress(done, len(news))
                db.execute("COMMIT")  # what was read stays, whatever ends this
                db.execute("BEGIN IMMEDIATE")
            _put(db, archive.runs / name, known)
        if settled:
            db.execute("INSERT INTO directory VALUES (?)", (changed,))
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise
    if news:
        progress(len(news), len(news))


def _differences(db: sqlite3.Connection, there: list[str], check: Archive | None) -> tuple[list[str], list[str]]:
    """Which of the sorted names are new, and which rows' files have gone; with `check`, changed files are both."""
    news: list[str] = []
    gone: list[str] = []
    names = iter(there)
    name = next(names, None)
    for row, size, changed in db.execute("SELECT name, size, changed FROM runs ORDER BY name" if check else _NAMES):
        while name is not None and name < row:
            news.append(name)
            name = next(names, None)
        if name != row:
            gone.append(row)
            continue
        if check is not None and _status(check.runs / row) != (size, changed):
            news.append(row)
        name = next(names, None)
    while name is not None:
        news.append(name)
        name = next(names, None)
    return [name for name in news if is_run_name(name)], gone


_NAMES = "SELECT name, 0, 0 FROM runs ORDER BY name"
_ENDINGS = (".json", ".json.gz")


def _status(path: Path) -> tuple[int, int] | None:
    """Size and time of change of a regular file; None where there is none."""
    try:
        status = path.stat(follow_symlinks=False)
    except OSError:
        return None
    return (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


def _settled(changed: int) -> bool:
    return abs(time.time_ns() - changed) > UNSETTLED_NS


def _put(db: sqlite3.Connection, path: Path, known: dict[Series, int]) -> None:
    status = _status(path)  # before it is read: a file that is replaced meanwhile does not fit its row
    if status is None:
        return
    size, changed = status
    if not _settled(changed):
        changed = UNSETTLED
    problem = None
    try:
        facts = facts_of(read_run(path))
        blob = encoded(facts)
        started = stamp(facts.started, 0)
    except ArchiveError as error:
        if not path.exists():
            return
        problem = error.detail.removeprefix(f"{path}: ")
    except (OverflowError, ValueError) as error:  # a time before year 1 in UTC, say: one file must not cost the rest
        problem = f"holds what no row can: {error}"
    if problem is not None:
        row: tuple[object, ...] = (path.name, size, changed, "", None, None, problem, None, None)
    else:
        series = known.get(facts.series)
        if series is None:
            series = known[facts.series] = _series_id(db, facts.series)
        row = (path.name, size, changed, facts.run_id, series, started, None, checksum_of(blob, facts.series), blob)
    db.execute("INSERT OR REPLACE INTO runs VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def _series_id(db: sqlite3.Connection, series: Series) -> int:
    key = key_of(series)
    db.execute(
        "INSERT OR IGNORE INTO series (key, gpu, daemon, plan) VALUES (?, ?, ?, ?)",
        (key, series.gpu_uuid, series.daemon, series.plan),
    )
    return int(db.execute("SELECT id FROM series WHERE key = ?", (key,)).fetchone()[0])
