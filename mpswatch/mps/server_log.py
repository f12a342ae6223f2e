"""server.log: the only place where a fault shows that is over before the next poll.

A client that ends with work in flight takes a neighbour down, and the server is `ACTIVE` again within half a second;
the log names the neighbour: `Client {PID: 1515, Context: 1} encountered a fatal GPU error`. Read as it grows, from one
look to the next, through rotation (by renaming, and by truncating in place). Never written to.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from mpswatch.documents import Reason
from mpswatch.errors import MpswatchError
from mpswatch.names import clip, printable

FILE_NAME = "server.log"
FAULT = b"encountered a fatal GPU error"

_MOST_BYTES = 1 << 20
"""Read at one look; of a log that grows faster the newest part is read."""
_FIRST_LOOK = 1 << 16
_STAMP = re.compile(rb"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+) ")


class LogError(MpswatchError):
    """The log cannot be read: `permission`, or `not_recorded` where there is none."""


@dataclass(frozen=True)
class Faults:
    """`new` are the lines of faults since the last look, printable and clipped (none at the first look).

    `newest_age` is how many seconds ago the newest fault was that was there at the first look, by the stamp in the
    line and this host's time zone; None where there was none, or none with a stamp, and at every later look.
    """

    new: tuple[str, ...] = ()
    newest_age: float | None = None


class ServerLog:
    """Follows `server.log` in one log directory. Not thread-safe."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self._descriptor: int | None = None
        self._offset = 0
        self._rest = b""
        self._looked = False

    def look(self) -> Faults:
        """What was written since the last look. Raises `LogError`; a log that comes later is read from its start."""
        first, self._looked = not self._looked, True
        data = b"" if self._descriptor is None else self._read()
        try:
            fresh = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        except FileNotFoundError:
            if self._descriptor is None:
                raise LogError(Reason.NOT_RECORDED, f"there is no {self.path}") from None
            return Faults(_faults(self._lines(data)))  # rotated away, and no new one yet
        except OSError as error:
            raise LogError(Reason.PERMISSION, f"{self.path}: {error.strerror}") from None
        if self._descriptor is not None and os.path.samestat(os.fstat(self._descriptor), os.fstat(fresh)):
            os.close(fresh)
            return Faults(_faults(self._lines(data)))
        lines = self._lines(data)
        self._follow(fresh)
        if first:
            self._offset = max(0, os.fstat(fresh).st_size - _FIRST_LOOK)
            return Faults(newest_age=_newest_age(self._lines(self._read())))
        return Faults(_faults([*lines, *self._lines(self._read())]))

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()

    def _follow(self, descriptor: int) -> None:
        self.close()
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise LogError(Reason.NOT_RECORDED, f"{self.path} is no regular file")
        self._descriptor, self._offset, self._rest = descriptor, 0, b""

    def _read(self) -> bytes:
        assert self._descriptor is not None  # noqa: S101 - narrows the type: both callers have one
        size = os.fstat(self._descriptor).st_size
        if size < self._offset:  # truncated in place: what is there now is new
            self._offset, self._rest = 0, b""
        if size - self._offset > _MOST_BYTES:
            self._offset, self._rest = size - _MOST_BYTES, b""
        data = os.pread(self._descriptor, size - self._offset, self._offset)
        self._offset += len(data)
        return data

    def _lines(self, data: bytes) -> list[bytes]:
        """The whole lines; half a line waits for its other half."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-4096:]
        return lines


def _faults(lines: list[bytes]) -> tuple[str, ...]:
    return tuple(clip(printable(line.strip())) for line in lines if FAULT in line)


def _newest_age(lines: list[bytes]) -> float | None:
    for line in reversed(lines):
        stamp = _STAMP.search(line) if FAULT in line else None
        if stamp is None:
            continue
        try:
            at = datetime.strptime(stamp[1].decode(), "%Y-%m-%d %H:%M:%S.%f").astimezone()
        except ValueError:
            continue
        return max(0.0, (datetime.now(UTC) - at).total_seconds())
    return None
