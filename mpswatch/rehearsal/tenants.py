"""Services and foreign tenants: cheap real processes that hold pretended memory."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from mpswatch.rehearsal import processes
from mpswatch.rehearsal.layout import SOCKET, DaemonPaths, RehearsalError

JOIN_PATIENCE = 5.0  # seconds for a service to be let in


class Tenant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a process on the GPU is to look like. `memory_mib` is by device.

    `kind`: `service` attaches to the daemon; `foreign` does not; `escaped` is a service that ought to and does not;
    `filler` takes a context; `waiting` is of another uid than the server and queues.
    """

    kind: str
    name: str
    arguments: tuple[str, ...]
    memory_mib: dict[int, int]
    daemon: str
    uid: int | None = None
    cap: str | None = None
    busy: bool = False
    cgroup: str | None = None
    namespaced: bool = False
    process_name: str | None = None

    @property
    def managed(self) -> bool:
        return self.kind in {"service", "filler", "waiting"}

    @property
    def shown_name(self) -> str:
        """As nvidia-smi shows it: the program, as its command line names it."""
        return self.process_name if self.process_name is not None else self.arguments[0]


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's processes: its own, and the one that the director forked (its shim, when in a namespace)."""

    pid: int
    child: int
    report: int


def start(tenant: Tenant, paths: DaemonPaths) -> Started:
    """Fork the tenant; `joined` says later whether it was let in."""
    report, write = os.pipe()
    arguments = tenant.arguments

    def work() -> int:
        return _serve(tenant, paths, write) if tenant.managed else _stay(write)

    def shim() -> int:
        processes.into_pid_namespace()
        inner = processes.fork(work, arguments=arguments, uid=tenant.uid, keep=[write], own_session=True)
        os.write(write, f"pid {inner}\n".encode())
        os.close(write)
        return os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]) & 0xFF

    if tenant.namespaced:
        look = ("/usr/bin/containerd-shim-runc-v2", "-namespace", "moby")
        child = processes.fork(shim, arguments=look, keep=[write], own_session=True)
    else:
        child = processes.fork(work, arguments=arguments, uid=tenant.uid, keep=[write], own_session=True)
    os.close(write)
    pid = child
    if tenant.namespaced:
        found = re.search(rb"pid (\d+)", _hear(report, time.monotonic() + JOIN_PATIENCE, b"pid "))
        if found is None:
            os.close(report)
            raise RehearsalError("a pid namespace could not be made", "run the rehearsal as root")
        pid = int(found[1])
    return Started(pid=pid, child=child, report=report)


def joined(started: Started, until: float) -> bool:
    """Whether the tenant is in its place by `until` (monotonic); closes its report."""
    try:
        return b"in\n" in _hear(started.report, until, b"in\n")
    finally:
        os.close(started.report)


def _hear(report: int, until: float, wanted: bytes) -> bytes:
    said = b""
    while wanted not in said and (left := until - time.monotonic()) > 0:
        if not select.select([report], [], [], left)[0]:
            break
        part = os.read(report, 256)
        if not part:
            break
        said += part
    return said


def _stay(report: int) -> int:
    os.write(report, b"in\n")
    os.close(report)
    while True:
        signal.pause()


def _serve(tenant: Tenant, paths: DaemonPaths, report: int) -> int:
    """Attach as a client of the stack would, then hold the context until a fault or the server's end."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(paths.pipe / SOCKET))
    ask = {"cap": tenant.cap, "service": tenant.kind != "waiting", "busy": tenant.busy}
    connection.sendall(msgspec.json.encode({"attach": ask}) + b"\n")
    if not connection.recv(4096).startswith(b'{"attached"'):
        return 1
    with contextlib.suppress(BrokenPipeError):  # one that had to wait long for its turn: nobody listens any more
        os.write(report, b"in\n")
    os.close(report)
    connection.recv(4096)  # a fault, or the end of the server: a CUDA program does not survive either
    return 1


# --- units and containers ------------------------------------------------------------------------------


def hierarchies() -> list[Path]:
    """Mount points of the cgroup hierarchies that tell units and containers: v2, and v1's name=systemd."""
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, options, *_ = line.split()
        if (kind == "cgroup2" or (kind == "cgroup" and "name=systemd" in options.split(","))) and os.access(
            point, os.W_OK
        ):
            found.append(Path(point))
    return found


def place(pid: int, cgroup: str) -> list[Path]:
    """Move `pid` into `cgroup` (made where it is missing); returns the directories made, deepest last."""
    points = hierarchies()
    if not points:
        raise RehearsalError(
            "no cgroup hierarchy may be written here", "run the rehearsal as root, with cgroups mounted"
        )
    made: list[Path] = []
    for point in points:
        group = point / cgroup.strip("/")
        missing = [directory for directory in (group, *group.parents) if not directory.exists()]
        for directory in reversed(missing):
            directory.mkdir()
            made.append(directory)
        (group / "cgroup.procs").write_text(str(pid))
    return made


def unplace(made: list[Path]) -> None:
    """Remove cgroups that `place` made and that are empty by now."""
    for directory in reversed(made):
        for _ in range(50):
            try:
                directory.rmdir()
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.01)  # the kernel takes a moment to notice that the last process is gone
            else:
                break


def environment(paths: DaemonPaths, devices: Mapping[int, str] | None = None) -> dict[str, str]:
    """The environment that a control daemon shows, by which others find it."""
    shown = {"CUDA_MPS_PIPE_DIRECTORY": str(paths.pipe), "CUDA_MPS_LOG_DIRECTORY": str(paths.log)}
    if devices:
        shown["CUDA_VISIBLE_DEVICES"] = ",".join(devices.values())
    return shown
