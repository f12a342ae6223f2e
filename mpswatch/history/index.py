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
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mpswatch.archive import Archive, ArchiveError
from mpswatch.archive.files import take_lock
from mpswatch.documents import Reason
from mpswatch.history.queries import Index, StaleIndexError
from mpswatch.history.refreshing import Progress, refresh
from mpswatch.history.rows import BrokenIndexError

PATIENCE = 60.0
"""Seconds to wait for another process that builds or updates the index."""


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
        refresh(archive, connection, every_file, progress)
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
            refresh(archive, connection, every_file, progress)
        except (sqlite3.DatabaseError, BrokenIndexError):
            connection.close()
            connection = _connect("")
            refresh(archive, connection, every_file, progress)
    except BaseException:
        connection.close()
        raise
    return Index(archive, connection, lambda: None)


def _connect(name: str) -> sqlite3.Connection:
    connection = sqlite3.connect(name, isolation_level=None, timeout=PATIENCE)
    connection.execute("PRAGMA temp_store = FILE")
    return connection


def _lock(directory: Path) -> int:
    """Take the lock alone; `OSError` where the directory is not ours to write, or has no locks."""
    descriptor = os.open(directory / "index.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
    try:
        locked = take_lock(descriptor, until=time.monotonic() + PATIENCE)
    except OSError:
        os.close(descriptor)
        raise
    if not locked:
        os.close(descriptor)
        detail = f"another process has held {directory / 'index.lock'} for {PATIENCE:g} s"
        raise ArchiveError(Reason.ARCHIVE_READ_FAILED, detail, "wait until it has built the index")
    return descriptor


def _is_broken(error: sqlite3.OperationalError) -> bool:
    """Whether SQLite complains about what the file holds (a table that is not there), not about the disk."""
    return error.sqlite_errorcode & 0xFF in {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
