"""The index beside the archive: SQLite, rebuilt from the runs whenever it is not in order, and never believed blindly.

    DIRECTORY/index.sqlite    facts of each run, by file name with the file's size and time of change
    DIRECTORY/index.lock      flock: held alone while the index is brought up to date, shared while it is read

The runs are the truth. At each opening the directory's own time of change says whether runs came or went: if so its
names are compared, new ones read, and those that have gone taken out. A row is believed only while its file still has
the size and the time of change that it had when it was read, looked up whenever the row is: a row that is not leads to
every file being looked at. A time that is less than two seconds old is not relied upon, because the file system's
clock may not tell two changes apart. Each row carries a checksum, and an index that is broken is built anew.
Where the archive cannot be written the index is kept in a temporary file for this one process.
Why SQLite: docs/measurements/archive-index-2026-11-30.md.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import sqlite3
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from mpswatch.archive import Archive, ArchiveError, read_run
from mpswatch.archive.files import named_errors
from mpswatch.archive.names import is_run_name
from mpswatch.documents import Reason
from mpswatch.history.facts import RunFacts, Series, facts_of

FORMAT = 1
"""Raised whenever what a row holds changes: an index of another format is rebuilt."""

PATIENCE = 60.0
"""Seconds to wait for another process that builds or updates the index."""

UNSETTLED_NS = 2_000_000_000
UNSETTLED = -1
"""Stands for a time of change that is too young to be relied upon: the file is read again at each opening."""
BATCH = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_TABLES = """
CREATE TABLE series (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, gpu TEXT NOT NULL, daemon TEXT NOT NULL,
    plan TEXT NOT NULL);
CREATE TABLE runs (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, size INTEGER NOT NULL, changed INTEGER NOT NULL,
    run_id TEXT NOT NULL, series INTEGER REFERENCES series (id), started INTEGER, problem TEXT, checksum INTEGER,
    facts BLOB);
CREATE INDEX by_series ON runs (series, started);
CREATE INDEX by_id ON runs (run_id);
CREATE INDEX by_problem ON runs (problem) WHERE problem IS NOT NULL;
CREATE INDEX by_change ON runs (changed) WHERE changed < 0;
CREATE TABLE directory (changed INTEGER NOT NULL);
"""

_NO_SERIES = Series("", "", "", "", "", "", 0, 0, "", "", simulated=False)
"""Stands in a row's facts for the series, which the row names by number."""

_facts_in = msgspec.msgpack.Encoder()
_facts_out = msgspec.msgpack.Decoder(RunFacts)


_Row: TypeAlias = tuple[str, int, int, str, int, int, bytes]


class BrokenIndexError(Exception):
    """What the index says cannot be: it is rebuilt. Never leaves this room."""


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
        return tuple((_series(key), count, _time(newest)) for key, count, newest in rows)

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
        values = (_key(series), _stamp(since, -(1 << 62)), _stamp(until, 1 << 62))
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
            facts = _decoded(blob, checksum, series)
            if (facts.run_id, _stamp(facts.started, 0)) != (run_id, started):
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


Progress: TypeAlias = Callable[[int, int], None]


def _quiet(_done: int, _of: int) -> None:
    pass


def open_index(archive: Archive, *, every_file: bool = False, progress: Progress = _quiet) -> Index:
    """Open the archive's index and bring it up to date; `progress(done, of)` is told of runs that are read for it.

    With `every_file` no row is believed before its file was looked at. Prefer `read_with_index`, which does that where
    a row turns out to be stale. Raises `ArchiveError` where the runs cannot be listed, or another process has held the
    index for a minute.
    """
    if not archive.runs.exists():
        detail = f"{archive.directory} is no archive: it has no directory 'runs'"
        raise ArchiveError(Reason.ARCHIVE_READ_FAILED, detail, "give the directory that the daemon's archive is in")
    try:
        lock = _lock(archive.directory)
    except OSError:
        return _temporary(archive, every_file, progress)
    try:
        for attempt in (1, 2):
            try:
                return _opened(archive, lock, every_file, progress)
            except (sqlite3.DatabaseError, BrokenIndexError) as error:
                if isinstance(error, sqlite3.OperationalError) and not _is_broken(error):
                    break  # a disk that is full or read-only breaks no index, but takes no rows either
                if attempt == 2:
                    break
                _remove(archive)
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return _temporary(archive, every_file, progress)


T = TypeVar("T")


def read_with_index(archive: Archive, read: Callable[[Index], T], *, progress: Progress = _quiet) -> T:
    """Call `read` with the index; once more where the index turns out to be stale or broken, with a better one.

    `read` must not hand out what it has not read to its end. Raises `ArchiveError`.
    """
    try:
        return _read_fresh(archive, read, progress)
    except sqlite3.Error as error:
        detail = f"the index of {archive.directory} cannot be used: {error}"
        raise ArchiveError(Reason.ARCHIVE_READ_FAILED, detail, "free space there, or remove index.sqlite") from error
    except (BrokenIndexError, StaleIndexError) as error:
        detail = f"the archive in {archive.directory} changes faster than it can be read: {error}"
        raise ArchiveError(Reason.ARCHIVE_READ_FAILED, detail, "try again") from error


def _read_fresh(archive: Archive, read: Callable[[Index], T], progress: Progress) -> T:
    try:
        with open_index(archive, progress=progress) as index:
            return read(index)
    except StaleIndexError:
        with open_index(archive, every_file=True, progress=progress) as index:
            return read(index)
    except (sqlite3.DatabaseError, BrokenIndexError):
        with contextlib.suppress(OSError):
            lock = _lock(archive.directory)
            try:
                _remove(archive)
            finally:
                os.close(lock)
        with open_index(archive, progress=progress) as index:
            return read(index)


def _remove(archive: Archive) -> None:
    """Remove the index's files; only for whoever holds the lock alone: SQLite suffers no other way."""
    for ending in ("", "-journal", "-wal", "-shm"):
        (archive.directory / f"index.sqlite{ending}").unlink(missing_ok=True)


def _opened(archive: Archive, lock: int, every_file: bool, progress: Progress) -> Index:  # noqa: FBT001  # as open_index
    path = archive.directory / "index.sqlite"
    with contextlib.suppress(FileExistsError):  # SQLite would let everybody read it, and its journals take its mode
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640))
    connection = _connect(str(path))
    try:
        _refresh(archive, connection, every_file, progress)
    except BaseException:
        connection.close()
        raise
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_SH)
    return Index(archive, connection, lambda: os.close(lock))


def _temporary(archive: Archive, every_file: bool, progress: Progress) -> Index:  # noqa: FBT001  # as open_index
    """An index for this process alone, in a file that SQLite removes; begun from the archive's own where it can."""
    connection = _connect("")
    try:
        with contextlib.suppress(sqlite3.DatabaseError):
            there = sqlite3.connect(f"{(archive.directory / 'index.sqlite').absolute().as_uri()}?mode=ro", uri=True)
            with contextlib.closing(there):
                there.backup(connection)
        try:
            _refresh(archive, connection, every_file, progress)
        except (sqlite3.DatabaseError, BrokenIndexError):
            connection.close()
            connection = _connect("")
            _refresh(archive, connection, every_file, progress)
    except BaseException:
        connection.close()
        raise
    return Index(archive, connection, lambda: None)


def _connect(name: str) -> sqlite3.Connection:
    connection = sqlite3.connect(name, isolation_level=None, timeout=PATIENCE)
    connection.execute("PRAGMA temp_store = FILE")
    connection.execute("PRAGMA cache_size = -16384")  # KiB
    return connection


def _refresh(archive: Archive, db: sqlite3.Connection, every_file: bool, progress: Progress) -> None:  # noqa: FBT001
    """Make the index say what the directory says."""
    if db.execute("PRAGMA user_version").fetchone()[0] != FORMAT:
        if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise BrokenIndexError("an index of another format")
        db.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {FORMAT}; COMMIT;")
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
    try:
        facts = facts_of(read_run(path))
    except ArchiveError as error:
        if not path.exists():
            return
        problem = error.detail.removeprefix(f"{path}: ")
        row: tuple[object, ...] = (path.name, size, changed, "", None, None, problem, None, None)
    else:
        blob = _facts_in.encode(msgspec.structs.replace(facts, series=_NO_SERIES))
        series = known.get(facts.series)
        if series is None:
            series = known[facts.series] = _series_id(db, facts.series)
        started = _stamp(facts.started, 0)
        row = (path.name, size, changed, facts.run_id, series, started, None, _checksum(blob, facts.series), blob)
    db.execute("INSERT OR REPLACE INTO runs VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def _series_id(db: sqlite3.Connection, series: Series) -> int:
    key = _key(series)
    db.execute(
        "INSERT OR IGNORE INTO series (key, gpu, daemon, plan) VALUES (?, ?, ?, ?)",
        (key, series.gpu_uuid, series.daemon, series.plan),
    )
    return int(db.execute("SELECT id FROM series WHERE key = ?", (key,)).fetchone()[0])


def _checksum(blob: bytes, series: Series) -> int:
    return zlib.crc32(blob, _seed(series))


@functools.lru_cache(maxsize=1024)
def _seed(series: Series) -> int:
    return zlib.crc32(_key(series).encode())


def _decoded(blob: bytes, checksum: int, series: Series) -> RunFacts:
    if _checksum(blob, series) != checksum:
        raise BrokenIndexError("a row's checksum is wrong")
    try:
        return msgspec.structs.replace(_facts_out.decode(blob), series=series)
    except msgspec.DecodeError as error:
        raise BrokenIndexError(str(error)) from None


def _lock(directory: Path) -> int:
    """Take the lock alone; `OSError` where the directory is not ours to write, or has no locks."""
    descriptor = os.open(directory / "index.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
    until = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                os.close(descriptor)
                detail = f"another process has held {directory / 'index.lock'} for {PATIENCE:g} s"
                raise ArchiveError(Reason.ARCHIVE_READ_FAILED, detail, "wait until it has built the index") from None
            time.sleep(0.02)
        except OSError:
            os.close(descriptor)
            raise
        else:
            return descriptor


def _is_broken(error: sqlite3.OperationalError) -> bool:
    """Whether SQLite complains about what the file holds (a table that is not there), not about the disk."""
    return error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def _key(series: Series) -> str:
    return msgspec.json.encode(series).decode()


def _series(key: str) -> Series:
    try:
        return msgspec.json.decode(key, type=Series)
    except msgspec.DecodeError as error:
        raise BrokenIndexError(str(error)) from None


def _stamp(at: datetime | None, otherwise: int) -> int:
    """Microseconds since the epoch."""
    return otherwise if at is None else (at - _EPOCH) // timedelta(microseconds=1)


def _time(stamp: int) -> datetime:
    return _EPOCH + timedelta(microseconds=stamp)
