"""Events as JSON lines, rotated by size: what happened, for people and for the rule that a crash loop must not sweep.

Several processes may append (the daemon, a sweep from the command line): each line is one write to a file
opened for appending, under a short lock that rotation takes too. A line cut by a crash stays alone: the next
append starts a new line, and the reader leaves the broken one out.

For the daemon: `append(event, durable=True)` for `sweep_started`; `newest_sweep_started()` at the start.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from mpswatch.archive import REMEDIES, ArchiveError
from mpswatch.archive.files import sync_directory, take_lock
from mpswatch.documents import DocumentError, Event, EventKind, Reason, from_json, to_json

LOCK_PATIENCE = 1.0
"""Seconds to wait for another process's append. After that the line is written anyway, without rotation."""

MAX_LINE_BYTES = 64 << 10


class Journal:
    """The journal in `directory`: journal.jsonl, and journal.1.jsonl (newest) to journal.KEEP.jsonl of earlier ones."""

    def __init__(self, directory: Path, *, rotate_bytes: int = 4 << 20, keep: int = 4) -> None:
        self._directory = directory
        self._rotate_bytes = rotate_bytes
        self._keep = keep
        self.path = directory / "journal.jsonl"

    def append(self, event: Event, *, durable: bool = False) -> None:
        """Add one line; `durable` returns only once it is on the disk. Raises `ArchiveError`."""
        line = to_json(event) + b"\n"
        if len(line) > MAX_LINE_BYTES:
            raise ArchiveError(Reason.ARCHIVE_WRITE_FAILED, f"an event of {len(line)} bytes is no journal line")
        try:
            descriptor, locked = self._open()
            try:
                self._write(descriptor, line, durable=durable)
                size = os.fstat(descriptor).st_size
                if locked and size >= self._rotate_bytes:
                    self._rotate()
            finally:
                os.close(descriptor)
        except OSError as error:
            detail = f"cannot write {self.path}: {error.strerror or error}"
            raise ArchiveError(Reason.ARCHIVE_WRITE_FAILED, detail, REMEDIES.get(error.errno or 0)) from error

    def read(self, *, limit: int | None = None) -> tuple[Event, ...]:
        """Give the last `limit` events (all that are kept, for None), oldest first; broken lines are left out."""
        events: list[Event] = []
        for event in self._newest_first():
            if limit is not None and len(events) >= limit:
                break
            events.append(event)
        return tuple(reversed(events))

    def of(self, kinds: Collection[EventKind]) -> Iterator[Event]:
        """Give the kept events of these kinds, newest first; lines of others are not even read."""
        marks = [f'"{kind}"'.encode() for kind in kinds]
        yield from (event for event in self._newest_first(marks) if event.kind in kinds)

    def newest_sweep_started(self) -> Event | None:
        """Give the newest `sweep_started`, for the rule against crash loops."""
        starts: tuple[EventKind, ...] = ("sweep_started",)
        return next(self.of(starts), None)

    def _files(self) -> Iterator[Path]:
        yield self.path
        for number in range(1, self._keep + 1):
            yield self._directory / f"journal.{number}.jsonl"

    def _newest_first(self, marks: Collection[bytes] = ()) -> Iterator[Event]:
        """Read what is kept backwards; with `marks` only the lines that hold one of them."""
        for path in self._files():
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise ArchiveError(
                    Reason.ARCHIVE_READ_FAILED, f"cannot read {path}: {error.strerror}", REMEDIES.get(error.errno or 0)
                ) from error
            with open(descriptor, "rb") as file:
                # A journal grows one line beyond its bound at most; anything larger is not read whole.
                size = os.fstat(descriptor).st_size
                file.seek(max(0, size - self._rotate_bytes - MAX_LINE_BYTES))
                lines = file.read().split(b"\n")
            for line in reversed(lines):
                if not line or (marks and not any(mark in line for mark in marks)):
                    continue
                try:
                    yield from_json(line, Event)
                except DocumentError:
                    continue

    def _open(self) -> tuple[int, bool]:
        """Open the current file and lock it; again if another process rotated it in between."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        patience = time.monotonic() + LOCK_PATIENCE
        while True:
            descriptor = os.open(self.path, flags, 0o640)
            try:
                locked = _lock(descriptor, until=patience)
                if not locked or _is_at(descriptor, self.path):
                    return descriptor, locked
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def _write(self, descriptor: int, line: bytes, *, durable: bool) -> None:
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line  # what a crash cut off stays a line of its own
        written = os.write(descriptor, line)
        if written < len(line):
            # A short write to a regular file means that the disk is full: nothing half-written is left behind.
            os.ftruncate(descriptor, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if durable:
            os.fsync(descriptor)
            sync_directory(self._directory)

    def _rotate(self) -> None:
        files = list(self._files())
        for older, newer in reversed(list(zip(files[1:], files, strict=False))):
            if newer.exists():
                newer.replace(older)


def _lock(descriptor: int, *, until: float) -> bool:
    try:
        return take_lock(descriptor, until=until)
    except OSError:
        return False  # a file system without locks


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False
