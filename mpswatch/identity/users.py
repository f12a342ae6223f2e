"""User names and homes from the passwd file alone: a name service that hangs must not hang a poll."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from mpswatch.names import shown

_MOST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class User:
    name: str
    home: str


class Users:
    """Read anew when the file has changed. A user of a directory service (LDAP) has no name here."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._path = root / "etc/passwd"
        self._stamp: tuple[int, int, int] | None = None
        self._users: dict[int, User] = {}

    def user(self, uid: int) -> User | None:
        """Who `uid` is, or None where the file does not say."""
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp != self._stamp:
                self._users = _parsed(_read(self._path))
                self._stamp = stamp
        except OSError:
            self._users, self._stamp = {}, None
        return self._users.get(uid)


def _read(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.read(descriptor, _MOST_BYTES)
    finally:
        os.close(descriptor)


def _parsed(data: bytes) -> dict[int, User]:
    found: dict[int, User] = {}
    for line in data.decode("utf-8", "backslashreplace").splitlines():
        words = line.split(":")
        if len(words) >= 6 and words[0] and words[2].isascii() and words[2].isdigit():
            found.setdefault(int(words[2]), User(shown(words[0]), words[5]))
    return found
