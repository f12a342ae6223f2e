"""The lines of an answer, and the errors of one that is not in the grammar."""

from __future__ import annotations

import re

from mpswatch.documents import Reason
from mpswatch.errors import MpswatchError
from mpswatch.names import clip, printable

MOST_PIDS = 4096
"""More pids than this in one list are nonsense: a server holds at most 60 clients."""

_UNKNOWN_COMMAND = re.compile(rb'Unknown command "([a-z_]{1,64})( [0-9A-Za-z -]*)?"')


class ReplyError(MpswatchError):
    """The control daemon answered something that is not in the grammar."""


class OtherProtocol(ReplyError):  # noqa: N818 -- says what happened, and reads so where it is caught
    """The daemon does not know the first command of this protocol, or speaks as protocol 3 does.

    `protocol` is which one, None where nothing shows it.
    """

    def __init__(self, detail: str, *, protocol: str | None) -> None:
        super().__init__(Reason.PROTOCOL_UNSUPPORTED, detail)
        self.protocol = protocol


class Lines:
    """The lines not read yet. An unfinished last line is an error before anything is believed."""

    def __init__(self, data: bytes) -> None:
        # An empty list is one empty line or two: nothing depends on how many there are.
        self._lines = lines_of(data)
        self.ends_empty = not data[:-1].rpartition(b"\n")[2].strip()
        self._next = 0

    def peek(self) -> bytes | None:
        return self._lines[self._next].strip() if self._next < len(self._lines) else None

    def take(self) -> bytes | None:
        line = self.peek()
        self._next += 1
        return line

    def run_of(self, line: bytes) -> int:
        """How often `line` comes now, one after the other."""
        left = self.rest()
        return next((number for number, one in enumerate(left) if one.strip() != line), len(left))

    def rest(self) -> list[bytes]:
        return self._lines[self._next :]


def no_such(line: bytes | None, command: str) -> bool:
    """Whether the daemon says that it knows no such command."""
    unknown = _UNKNOWN_COMMAND.fullmatch(line or b"")
    return unknown is not None and unknown[1] == command.partition(" ")[0].encode()


def lines_of(data: bytes) -> list[bytes]:
    """The lines of an answer that are not empty. None at all, or an unfinished last one, is a `ReplyError`."""
    if not data:
        raise ReplyError(Reason.DAEMON_NONSENSE, "the control daemon answered nothing at all")
    *lines, rest = data.split(b"\n")
    if rest:
        raise ReplyError(Reason.DAEMON_NONSENSE, "the answer stops in the middle of a line")
    return [line for line in lines if line.strip()]


def unexpected(line: bytes | None, command: str) -> ReplyError:
    """The error for a line (None: the end) where the answer to `command` should be."""
    if line is None:
        return ReplyError(Reason.DAEMON_NONSENSE, f"the answer ends before that to {command}")
    if line.startswith(b"Not enough privilege"):
        return ReplyError(Reason.PERMISSION, f"{command}: {quoted(line)}")
    unknown = _UNKNOWN_COMMAND.fullmatch(line)
    if (unknown and unknown.group(1) == b"get_server_list") or line == b"Ready":
        return OtherProtocol(f"{command}: {quoted(line)}", protocol="3" if line == b"Ready" else None)
    return ReplyError(Reason.DAEMON_NONSENSE, f"{command}: {quoted(line)}")


def quoted(line: bytes) -> str:
    """A line of an answer as an error may quote it."""
    return repr(clip(printable(line[:400]), 120))
