"""What a control daemon of protocol 3 may answer, as a grammar. Anything else is an error, never a guess.

From NVIDIA's documentation alone ("MPS v3 Interface", drivers 615 and 620): never run on a real daemon. What it shows
(tests/recordings/mps-v3-documentation):

    server list --format=csv   a row a server: name, uid, pid, status, pipe-directory, allowed-devices, context-ids
    client list --format=csv   a row a client and device: pid, server, device, namespace, command

It does not show: a header (its columns' names are documented for servers only), the reply where there is none, how a
value with a comma or a line break is written, what stands for the pid of a server that has not started. So: asked with
its header, which alone proves that an empty list is whole; a header is known by its first name, which no row begins
with; lists of devices and contexts may hold commas, and are not used; a pid that is `-` or 0 is no process.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from mpswatch.documents import Reason
from mpswatch.mps.lines import MOST_PIDS, ReplyError, lines_of, quoted
from mpswatch.proc import PID_MAX

SERVER_COLUMNS = ("name", "uid", "pid", "status", "pipe-directory", "allowed-devices", "context-ids")
CLIENT_COLUMNS = ("pid", "server", "device")
"""The first three of five; what the header calls the other two is not documented."""

_NAME = rb"[a-z0-9_]{1,64}"
_SERVER = re.compile(
    rb"(%s),([0-9]{1,10}),([1-9][0-9]{0,6}|0|-),([A-Z][A-Za-z_-]{0,31}),(/[^,]{0,4095})"
    rb",[A-Za-z0-9_,;: \"-]{1,4096},[0-9,;: \"-]{1,4096}" % _NAME
)
_CLIENT = re.compile(rb"([1-9][0-9]{0,6}),(%s),([A-Za-z0-9_-]{1,64}),(%s),(.*)" % (_NAME, _NAME))
_UID_MAX = (1 << 32) - 2


@dataclass(frozen=True, slots=True)
class NamedServer:
    """A server as the daemon names it. `pid` is None while it has no process: its first client starts it."""

    name: str
    uid: int
    pid: int | None
    state: str


@dataclass(frozen=True, slots=True)
class NamedClient:
    """A client, or one of its devices: `server` and `namespace` are names."""

    pid: int
    server: str
    namespace: str


@lru_cache(maxsize=16)  # each poll asks anew, and is mostly answered in the same bytes
def servers(data: bytes) -> tuple[NamedServer, ...]:
    """Read the answer to `server list`, or raise `ReplyError`."""
    found = [_server(row) for row in _rows(data, "server list", SERVER_COLUMNS, width=7)]
    pids = [server.pid for server in found if server.pid is not None]
    if len({server.name for server in found}) < len(found) or len(set(pids)) < len(pids):
        raise ReplyError(Reason.DAEMON_NONSENSE, "server list: two servers of one name or of one pid")
    return tuple(found)


@lru_cache(maxsize=16)
def clients(data: bytes) -> tuple[NamedClient, ...]:
    """Read the answer to `client list --all`, or raise `ReplyError`."""
    return tuple(_client(row) for row in _rows(data, "client list", CLIENT_COLUMNS, width=5))


def _rows(data: bytes, question: str, columns: tuple[str, ...], *, width: int) -> list[bytes]:
    """The rows, without the header that may stand above them, and must where there are none."""
    lines = lines_of(data)
    if not lines:
        raise ReplyError(Reason.DAEMON_NONSENSE, f"{question}: neither a header nor a row")
    names = tuple(word.strip().lower().replace("_", "-") for word in lines[0].decode("ascii", "replace").split(","))
    if names[:2] == columns[:2]:
        if names[: len(columns)] != columns or len(names) != width:
            raise ReplyError(Reason.DAEMON_NONSENSE, f"{question}: not the documented columns: {quoted(lines[0])}")
        del lines[0]
    if len(lines) > MOST_PIDS:
        raise ReplyError(Reason.DAEMON_NONSENSE, f"{question}: {len(lines)} rows")
    return lines


def _server(row: bytes) -> NamedServer:
    match = _SERVER.fullmatch(row)
    if match is None or int(match[2]) > _UID_MAX:
        raise ReplyError(Reason.DAEMON_NONSENSE, f"server list: {quoted(row)}")
    pid = int(match[3]) if match[3] not in {b"0", b"-"} else None
    if pid is not None and pid > PID_MAX:
        raise ReplyError(Reason.DAEMON_NONSENSE, f"server list: {quoted(row)}")
    return NamedServer(match[1].decode("ascii"), int(match[2]), pid, match[4].decode("ascii"))


def _client(row: bytes) -> NamedClient:
    match = _CLIENT.fullmatch(row)
    if match is None or int(match[1]) > PID_MAX:
        raise ReplyError(Reason.DAEMON_NONSENSE, f"client list: {quoted(row)}")
    return NamedClient(int(match[1]), match[2].decode("ascii"), match[4].decode("ascii"))
