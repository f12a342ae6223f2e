"""What a control daemon may answer, as a grammar. Anything else is an error, never a guess.

Replies come one after the other with nothing between them, so only their form tells them apart
(tests/recordings: many-commands-one-connection.txt):

    reply    = list  percentage  { list-of-S  status-of-S }  [ table ]
    list     = nothing | empty-line | integers-line+ [ empty-line ]
    percentage = decimal | unknown-command
    list-of-S  = list | "Server S not found"
    status-of-S = WORD | "Server S not found"
    table    = nothing | "Server not found" | empty | header row* | unknown-command

Empty lines may stand anywhere (where a list is empty there is at least one): what follows a list tells where it ends.
An empty list may be nothing at all: what follows it (a decimal, a word) is never an integer, so it is told apart all
the same. Seen on an H200 in the two moments when a daemon has no server, before its first client and between two.

`Server S not found`, unknown commands and empty lists all leave exit status 0, which therefore proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from mpswatch.documents import Context, Reason
from mpswatch.errors import MpswatchError
from mpswatch.names import clip, printable, shown
from mpswatch.proc import PID_MAX

MOST_PIDS = 4096
"""More pids than this in one list are nonsense: a server holds at most 60 clients."""

HEADER = [b"PID", b"ID", b"SERVER", b"DEVICE", b"NAMESPACE", b"COMMAND"]

_INTEGER = re.compile(rb"[1-9][0-9]{0,6}")
_DECIMAL = re.compile(rb"[0-9]{1,3}\.[0-9]{1,6}")
_STATE = re.compile(rb"[A-Z][A-Z_]{1,31}")
_ROW = re.compile(
    rb"([1-9][0-9]{0,6})\s+([0-9]{1,9})\s+([1-9][0-9]{0,6})\s+((?:GPU|MIG)-[0-9a-fA-F-]{1,60})\s+([0-9]{1,19})(?:\s+(.*))?"
)
_UNKNOWN_COMMAND = re.compile(rb'Unknown command "([a-z_]{1,64})( [0-9]*)?"')


class ReplyError(MpswatchError):
    """The control daemon answered something that is not in the grammar."""


class OtherProtocol(ReplyError):  # noqa: N818 -- says what happened, and reads so where it is caught
    """The daemon does not know the first command of this protocol, or speaks as protocol 3 does.

    `protocol` is which one, None where nothing shows it.
    """

    def __init__(self, detail: str, *, protocol: str | None) -> None:
        super().__init__(Reason.PROTOCOL_UNSUPPORTED, detail)
        self.protocol = protocol


@dataclass(frozen=True, slots=True)
class ServerReply:
    """What was said about one server; None where the daemon did not find it."""

    clients: tuple[int, ...] | None
    state: str | None


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply. `contexts` is None when it was not asked for or is not known (`contexts_reason`)."""

    servers: tuple[int, ...]
    default_active_thread_percentage: float | None
    about: dict[int, ServerReply]
    contexts: tuple[Context, ...] | None
    contexts_reason: Reason | None


class _Lines:
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

    def rest(self) -> list[bytes]:
        return self._lines[self._next :]


def lines_of(data: bytes) -> list[bytes]:
    """The lines of an answer that are not empty. None at all, or an unfinished last one, is a `ReplyError`."""
    if not data:
        raise ReplyError(Reason.DAEMON_NONSENSE, "the control daemon answered nothing at all")
    *lines, rest = data.split(b"\n")
    if rest:
        raise ReplyError(Reason.DAEMON_NONSENSE, "the answer stops in the middle of a line")
    return [line for line in lines if line.strip()]


def parse(data: bytes, *, servers: Sequence[int], with_contexts: bool) -> Reply:
    """Read the answer to `commands.script(servers, with_contexts=…)`, or raise `ReplyError`."""
    return _parsed(data, tuple(servers), with_contexts)


@lru_cache(maxsize=16)  # each poll asks anew, and is mostly answered in the same bytes
def _parsed(data: bytes, servers: tuple[int, ...], with_contexts: bool) -> Reply:  # noqa: FBT001 -- keys of the cache
    lines = _Lines(data)
    listed = _list(lines, "get_server_list", _DECIMAL)
    percentage = _percentage(lines)
    about = {pid: ServerReply(_clients(lines, pid), _status(lines, pid)) for pid in servers}
    nobody = not any(one.clients for one in about.values())
    contexts, reason = _table(lines, may_be_nothing=nobody) if with_contexts else (None, None)
    if left := lines.rest():
        raise ReplyError(Reason.DAEMON_NONSENSE, f"more was answered than was asked: {quoted(left[0])}")
    return Reply(listed, percentage, about, contexts, reason)


def _list(lines: _Lines, command: str, follows: re.Pattern[bytes]) -> tuple[int, ...]:
    """Pids; none where the next line is already what `follows` a list."""
    line = lines.peek()
    pids: list[int] = []
    while line is not None and (words := line.split()) and all(_INTEGER.fullmatch(word) for word in words):
        pids += [int(word) for word in words]
        lines.take()
        line = lines.peek()
    if not pids:
        if line is not None and follows.fullmatch(line):
            return ()
        raise _unexpected(line, command)
    if len(pids) > MOST_PIDS or max(pids) > PID_MAX:
        raise ReplyError(Reason.DAEMON_NONSENSE, f"{command} answered what cannot be a list of pids")
    return tuple(sorted(set(pids)))


def _percentage(lines: _Lines) -> float | None:
    line = lines.take()
    if line is not None:
        if _DECIMAL.fullmatch(line) and float(line) <= 100:
            return float(line)
        unknown = _UNKNOWN_COMMAND.fullmatch(line)
        if unknown and unknown.group(1) == b"get_default_active_thread_percentage":
            return None
    raise _unexpected(line, "get_default_active_thread_percentage")


def _clients(lines: _Lines, server: int) -> tuple[int, ...] | None:
    if lines.peek() == b"Server %d not found" % server:
        lines.take()
        return None
    return _list(lines, f"get_client_list {server}", _STATE)


def _status(lines: _Lines, server: int) -> str | None:
    line = lines.take()
    if line == b"Server %d not found" % server:
        return None
    if line is not None and _STATE.fullmatch(line):
        return line.decode("ascii")
    raise _unexpected(line, f"get_server_status {server}")


def _table(lines: _Lines, *, may_be_nothing: bool) -> tuple[tuple[Context, ...] | None, Reason | None]:
    """`ps` is enrichment: a table that cannot be read (a command with a newline in it) is unknown, and no more."""
    line = lines.take()
    if line is None and may_be_nothing:
        return (), None
    rows = lines.rest()
    while lines.take() is not None:
        pass
    if (line is None and lines.ends_empty) or (line == b"Server not found" and not rows):
        return (), None
    if line is None:
        raise _unexpected(None, "ps")
    unknown = _UNKNOWN_COMMAND.fullmatch(line)
    if unknown and unknown.group(1) == b"ps":
        return None, Reason.NOT_SUPPORTED
    if line.split() != HEADER:
        raise _unexpected(line, "ps")
    if len(rows) > MOST_PIDS:
        return None, Reason.DAEMON_NONSENSE
    contexts = [_context(row) for row in rows]
    if any(context is None for context in contexts):
        return None, Reason.DAEMON_NONSENSE
    return tuple(context for context in contexts if context is not None), None


def _context(row: bytes) -> Context | None:
    match = _ROW.fullmatch(row.strip())
    if match is None or int(match.group(1)) > PID_MAX or int(match.group(3)) > PID_MAX:
        return None
    return Context(
        pid=int(match.group(1)),
        context_id=int(match.group(2)),
        server_pid=int(match.group(3)),
        device=match.group(4).decode("ascii"),
        pid_namespace=int(match.group(5)),
        command=shown(match.group(6) or b""),
    )


def _unexpected(line: bytes | None, command: str) -> ReplyError:
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
