"""What a control daemon may answer, as a grammar. Anything else is an error, never a guess.

Replies come one after the other with nothing between them, so only their form tells them apart
(tests/recordings: many-commands-one-connection.txt):

    reply    = list  defaults  { list-of-S  limits-of-S  status-of-S }  [ table ]
    defaults = percentage { limit  percentage }
    limits-of-S = nothing | percentage-of-S { limit-of-S  percentage-of-S }
    list     = nothing | empty-line | integers-line+ [ empty-line ]
    percentage = decimal | unknown-command
    limit    = nothing | integer K/M/G | unknown-command | whatever is not a percentage: unknown, and no more
    list-of-S  = list | "Server S not found"
    status-of-S = WORD | "Server S not found"
    table    = nothing | "Server not found" | empty | header row* | unknown-command

Empty lines may stand anywhere (where a list is empty there is at least one): what follows a list tells where it ends.
An empty list may be nothing at all: what follows it (a decimal, a word) is never an integer, so it is told apart all
the same. Seen on an H200 in the two moments when a daemon has no server, before its first client and between two.
Limits are asked now and then only, and told apart by the percentages before and after each (recording: limits.txt). A
server's is rounded down to the unit that it is printed in: `2500M` reads `2G`.

`Server S not found`, unknown commands and empty lists all leave exit status 0, which therefore proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from mpswatch.documents import Context, Reason
from mpswatch.mps import table
from mpswatch.mps.devices import Device, default_names
from mpswatch.mps.lines import MOST_PIDS, Lines, ReplyError, no_such, quoted, unexpected
from mpswatch.proc import PID_MAX

_INTEGER = re.compile(rb"[1-9][0-9]{0,6}")
_DECIMAL = re.compile(rb"[0-9]{1,3}\.[0-9]{1,6}")
_STATE = re.compile(rb"[A-Z][A-Z_]{1,31}")
_LIMIT = re.compile(rb"([0-9]{1,7})([KMG])")


@dataclass(frozen=True, slots=True)
class Limits:
    """The percentage of multiprocessors that a client is given at most, and its memory (bytes) by device.

    None where the daemon knows no such command or server; a device's None is no limit, as far as the daemon tells.
    """

    active_thread_percentage: float | None
    memory: dict[str, int | None] | None


@dataclass(frozen=True, slots=True)
class ServerReply:
    """What was said about one server; None where the daemon did not find it. `limits` is None when not asked for."""

    clients: tuple[int, ...] | None
    state: str | None
    limits: Limits | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole reply. `contexts` is None when it was not asked for or is not known (`contexts_reason`).

    The memory of `defaults` is by the names that were asked about: uuids and ordinals (`devices.default_names`).
    """

    servers: tuple[int, ...]
    defaults: Limits
    about: dict[int, ServerReply]
    contexts: tuple[Context, ...] | None
    contexts_reason: Reason | None


def parse(
    data: bytes, *, servers: Sequence[int], with_contexts: bool, devices: Sequence[Device] | None = None
) -> Reply:
    """Read the answer to `commands.script` with the same arguments, or raise `ReplyError`."""
    return _parsed(data, tuple(servers), with_contexts, None if devices is None else tuple(devices))


@lru_cache(maxsize=16)  # each poll asks anew, and is mostly answered in the same bytes
def _parsed(
    data: bytes,
    servers: tuple[int, ...],
    with_contexts: bool,  # noqa: FBT001 -- a key of the cache
    devices: tuple[Device, ...] | None,
) -> Reply:
    lines = Lines(data)
    listed = _list(lines, "get_server_list", _DECIMAL)
    defaults = _limits(lines, default_names(devices or ()), None)
    about = {pid: _about(lines, pid, devices) for pid in servers}
    nobody = not any(one.clients for one in about.values())
    contexts, reason = table.contexts(lines, may_be_nothing=nobody) if with_contexts else (None, None)
    if left := lines.rest():
        raise ReplyError(Reason.DAEMON_NONSENSE, f"more was answered than was asked: {quoted(left[0])}")
    return Reply(listed, defaults, about, contexts, reason)


def _about(lines: Lines, server: int, devices: tuple[Device, ...] | None) -> ServerReply:
    clients = _clients(lines, server)
    limits = None if devices is None else _limits(lines, [device.uuid for device in devices], server)
    return ServerReply(clients, _status(lines, server), limits)


def _list(lines: Lines, command: str, *follows: re.Pattern[bytes]) -> tuple[int, ...]:
    """Pids; none where the next line is already what `follows` a list."""
    line = lines.peek()
    pids: list[int] = []
    while line is not None and (words := line.split()) and all(_INTEGER.fullmatch(word) for word in words):
        pids += [int(word) for word in words]
        lines.take()
        line = lines.peek()
    if not pids:
        if line is not None and any(pattern.fullmatch(line) for pattern in follows):
            return ()
        raise unexpected(line, command)
    if len(pids) > MOST_PIDS or max(pids) > PID_MAX:
        raise ReplyError(Reason.DAEMON_NONSENSE, f"{command} answered what cannot be a list of pids")
    return tuple(sorted(set(pids)))


def _limits(lines: Lines, devices: Sequence[str], server: int | None) -> Limits:
    """The daemon's defaults, or a server's: a percentage, and for each device a limit and the percentage again."""
    kind, of = ("default_", "") if server is None else ("", f" {server}")
    percentage = f"get_{kind}active_thread_percentage{of}"
    said = _percentage(lines, percentage, server)
    memory: dict[str, int | None] | None = {}
    for number, device in enumerate(devices):
        left = 2 * (len(devices) - number) + 1  # questions about this server, this one and its status included
        answer = _until_percentage(lines, percentage, server, left)
        match = _LIMIT.fullmatch(answer[0]) if len(answer) == 1 else None
        if match:
            limit = int(match[1]) << {b"K": 10, b"M": 20, b"G": 30}[match[2]]
            memory = None if memory is None else {**memory, device: limit}
        else:
            memory = None if answer or memory is None else {**memory, device: None}
        said = _percentage(lines, percentage, server)
    return Limits(said, memory)


def _until_percentage(lines: Lines, percentage: str, server: int | None, left: int) -> list[bytes]:
    """Whatever was answered before the percentage that was asked next.

    A server that has gone meanwhile is not found by every question that is `left`, and only then by this one.
    """
    if server is not None and (missed := lines.run_of(_not_found(server))):
        line = lines.take() if missed >= left else None
        return [] if line is None else [line]
    answer = []
    while (line := lines.peek()) is not None and not _DECIMAL.fullmatch(line) and not no_such(line, percentage):
        if server is not None and line == _not_found(server):
            break
        answer.append(line)
        lines.take()
    return answer


def _percentage(lines: Lines, command: str, server: int | None) -> float | None:
    line = lines.take()
    if line is not None and _DECIMAL.fullmatch(line) and float(line) <= 100:
        return float(line)
    if no_such(line, command) or (server is not None and line == _not_found(server)):
        return None
    raise unexpected(line, command)


def _not_found(server: int) -> bytes:
    return b"Server %d not found" % server


def _clients(lines: Lines, server: int) -> tuple[int, ...] | None:
    if lines.peek() == _not_found(server):
        lines.take()
        return None
    return _list(lines, f"get_client_list {server}", _DECIMAL, _STATE)


def _status(lines: Lines, server: int) -> str | None:
    line = lines.take()
    if line == _not_found(server):
        return None
    if line is not None and _STATE.fullmatch(line):
        return line.decode("ascii")
    raise unexpected(line, f"get_server_status {server}")
