"""Imports torch (or numpy) once and forks, on request, what the GPU suite needs many of: launchers, neighbours,
naive clients. `python nursery.py torch|numpy`, with a SEQPACKET socket as descriptor 0.

GPU time is short and an import takes seconds. A forked launcher runs the real `launcher.main`; only its exec and its
import are saved. The nursery itself never starts CUDA and has one thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mpswatch.client import launcher
from mpswatch.client.signals import ignore_signals

BEAT_SECONDS = 0.1
CLONE_NEWPID, CLONE_NEWNS = 0x20000000, 0x00020000
MS_REC_PRIVATE = 0x4000 | 1 << 18
NAIVE_SIZE = 4096


def main() -> None:
    library = sys.argv[1]
    ignore_signals()
    importlib.import_module(library)
    importlib.import_module(f"mpswatch.client.{library}_backend")
    orders = socket.socket(fileno=os.dup(0))
    orders.send(json.dumps({"ready": os.getpid(), "threads": launcher.thread_count()}).encode())
    while True:
        ready, _, _ = select.select([orders], [], [], 0.5)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if ready:
            message, fds, _, _ = socket.recv_fds(orders, 65536, 8)
            if not message:
                return
            pid = fork(json.loads(message), fds, library)
            for fd in fds:
                os.close(fd)
            orders.send(json.dumps({"pid": pid}).encode())


def fork(order: dict, fds: list[int], library: str) -> int:
    """Fork one; in a pid namespace of its own where the order says so (then as its pid 1). The pid as seen here."""
    if not order.get("pid_namespace"):
        pid = os.fork()
        if pid == 0:
            be(order, fds, library)
        return pid
    told, tell = os.pipe()
    if os.fork() == 0:
        library_c = ctypes.CDLL(None, use_errno=True)  # os.unshare came with Python 3.12
        if library_c.unshare(CLONE_NEWPID | CLONE_NEWNS) != 0:
            os.write(tell, b"-1")
            os._exit(1)
        pid = os.fork()
        if pid == 0:
            own_proc(library_c, fds)
            be(order, fds, library)
        os.write(tell, str(pid).encode())
        os.closerange(0, tell)
        os.close(tell)
        os.waitpid(pid, 0)
        os._exit(0)
    os.close(tell)
    pid = int(os.read(told, 64) or b"-1")
    os.close(told)
    return pid


def own_proc(library_c: ctypes.CDLL, fds: list[int]) -> None:
    """As pid 1, a /proc of the namespace's own: with the host's the driver fails (error 304)."""
    for call in ((None, b"/", None, MS_REC_PRIVATE, None), (b"proc", b"/proc", b"proc", 0, None)):
        if library_c.mount(*call) != 0:
            os.write(fds[2], f"mount{call}: {os.strerror(ctypes.get_errno())}\n".encode())
            os._exit(8)
    if (shown := Path("/proc/self").readlink().name) != str(os.getpid()):
        os.write(fds[2], f"/proc/self is {shown} and we are {os.getpid()}\n".encode())
        os._exit(8)


def be(order: dict, fds: list[int], library: str) -> None:
    """In the forked child, never returning: become what was ordered."""
    try:
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
        os.closerange(3, 4096)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        what = order["be"]
        if what == "launcher":
            launcher.main(order["arguments"])
        os.setsid()
        {"neighbour": neighbour, "naive": naive}[what](order, library)
    except BaseException as error:  # noqa: BLE001 -- the forked child must never return into the loop
        say(dead=f"{type(error).__name__}: {error}"[:500])
    finally:
        os._exit(9)


def say(**message: object) -> None:
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(message).encode() + b"\n")


def hung_up() -> bool:
    return bool(select.select([0], [], [], 0)[0])


def neighbour(order: dict, library: str) -> None:
    """A busy service: kernels without a pause until its input ends. A beat says that new work came out well."""
    if library == "numpy":
        say(ready=os.getpid())
        while not hung_up():
            time.sleep(BEAT_SECONDS)
            say(beat=1, tflops=0.0)
        os._exit(0)
    import torch

    size, batch = (4096, 20) if order["kind"] == "matmul" else (384, 300)
    a, b, c = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(3))
    torch.mm(a, b, out=c)
    torch.cuda.synchronize()
    say(ready=os.getpid(), sm_count=torch.cuda.get_device_properties(0).multi_processor_count)
    flying: list = []
    done, since = 0, time.monotonic()
    while not hung_up():
        while len(flying) < 3:
            for _ in range(batch):
                torch.mm(a, b, out=c)
            event = torch.cuda.Event()
            event.record()
            flying.append(event)
        flying.pop(0).synchronize()
        done += batch
        if (seconds := time.monotonic() - since) > BEAT_SECONDS:
            say(beat=done, tflops=round(2 * size**3 * done / seconds / 1e12, 1))
            done, since = 0, time.monotonic()
    torch.cuda.synchronize()
    say(bye=True)
    os._exit(0)


def naive(order: dict, library: str) -> None:
    """What a harness without our care starts: all work queued at once, ordinary signals, no lifeline."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = order["cap"]
    if library == "numpy":
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(order["pipe_directory"] + "/rehearsal")
        connection.sendall(json.dumps({"attach": {"cap": order["cap"]}}).encode() + b"\n")
        connection.recv(4096)
        connection.sendall(b"+")
        say(working=True)
        time.sleep(30)
        os._exit(0)
    import torch

    a, b, c = (torch.randn(NAIVE_SIZE, NAIVE_SIZE, device="cuda", dtype=torch.float16) for _ in range(3))
    torch.mm(a, b, out=c)
    torch.cuda.synchronize()
    say(working=True)
    for _ in range(200):
        for _ in range(200):
            torch.mm(a, b, out=c)
        torch.cuda.synchronize()
    os._exit(0)


if __name__ == "__main__":
    main()
