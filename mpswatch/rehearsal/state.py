"""What passes between the stack's processes: through files, so that a frozen one holds up nobody.

Each file has one writer and is replaced as a whole. The server's is in a directory that belongs to the
server's uid; the faults are the director's.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from mpswatch.rehearsal.layout import DaemonPaths


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a control daemon is started."""

    multi_user: bool = False
    server_uid: int | None = None
    """With it the server is there from the start, for this uid; else it comes with its first client."""
    default_percentage: float = 100.0
    memory_limit: str = ""
    """What each client may take of a device at most, as `2G`: a default limit set for each ordinal."""
    devices: tuple[int, ...] = (0,)
    context_limit: int = 48
    protocol: int = 2
    """3: the daemon is started with `-p 3`, and knows no command of protocol 2, but the lists of protocol 3."""

    @property
    def first_device(self) -> int:
        """A client's device 0: the driver's first that the daemon serves, in whatever order (recording: two-gpus)."""
        return min(self.devices)


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """What a control daemon and its server have been told to do wrong (tell.py explains each)."""

    lie: str = ""
    text: str = ""
    server_state: str = ""
    attach: str = ""
    seconds: float = 0.0
    pid: int = 0
    slow: float = 1.0


class Client(msgspec.Struct, kw_only=True):
    """One context on a server. `listed` are the pids that the client list shows for it: normally its own."""

    pid: int
    context_id: int
    uid: int
    cap: str | None
    sm_count: int
    device: int
    service: bool
    busy: bool
    listed: tuple[int, ...]
    in_flight: int = 0
    pieces: int = 0


class ServerState(msgspec.Struct, kw_only=True):
    """What one server holds; written by it at each change."""

    pid: int
    uid: int
    multi_user: bool
    percentage: float = 100.0
    fault_until: float = 0.0
    clients: list[Client] = []


class UnsafeEnd(msgspec.Struct, frozen=True, kw_only=True):
    """A client that ended with work in flight, or a fault that was ordered (`by` None), and who died of it.

    `neighbour` is None where nobody was busy.
    """

    server: int
    by: int | None
    neighbour: int | None


T = TypeVar("T")


def write(path: Path, value: object) -> None:
    """Replace the file at `path` by `value` as JSON."""
    draft = path.with_suffix(".draft")
    draft.write_bytes(msgspec.json.encode(value))
    draft.rename(path)


def read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None


def faults(paths: DaemonPaths) -> Faults:
    return read(paths.faults, Faults) or Faults()


def server(paths: DaemonPaths) -> ServerState | None:
    """The running server of a daemon, or None."""
    state = read(paths.state / "server.json", ServerState)
    return state if state is not None and alive(state.pid) else None


def unsafe_ends(paths: DaemonPaths) -> list[UnsafeEnd]:
    try:
        lines = (paths.state / "unsafe.jsonl").read_bytes().splitlines()
    except FileNotFoundError:
        return []
    return [msgspec.json.decode(line, type=UnsafeEnd) for line in lines]


def alive(pid: int) -> bool:
    """Whether the process is there and not merely unburied."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] not in {b"Z", b"X"}


def append(path: Path, value: object) -> None:
    """Add one JSON line, whole or not at all."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(descriptor, msgspec.json.encode(value) + b"\n")
    finally:
        os.close(descriptor)
