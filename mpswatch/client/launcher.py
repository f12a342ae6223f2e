"""The launcher: takes the lock, imports the library once without starting CUDA, forks one child a cell, and stays
until the last of them has left.

It alone reads the daemon's pipe, and each child's lifeline is held open by nobody else: when the daemon ends, by
whatever cause, its pipe ends, the launcher closes the lifelines, and the children drain and leave.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import os
import platform
import select
import signal
import stat
import sys
import time
from typing import Any, NamedTuple

from . import backend as backends
from . import child, faults, requests
from .lifeline import LINE_LIMIT, Output, OutputGone, clip
from .signals import ignore_signals

EXIT_DONE = 0
EXIT_FAILED = 1

# Set, so that there is one thread when it forks.
THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

# Removed, also where a container image brings them: each changes what is measured, or how.
UNWANTED = ("CUDA_", "CUBLAS", "PYTORCH_", "TORCH_", "NVIDIA_TF32_OVERRIDE", "LD_PRELOAD", "OMP_", "MKL_", "KMP_")
WANTED = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_CACHE_PATH",
    "CUDA_CACHE_DISABLE",
    "CUDA_HOME",
    "CUDA_MODULE_LOADING",
    "CUDA_PATH",
)


class Born(NamedTuple):
    """A child under way, as the launcher knows it."""

    order: int
    cap: str
    lifeline: int


def main(arguments: list[str] | None = None) -> None:
    """Run as the program: never returns."""
    ignore_signals()
    with contextlib.suppress(PermissionError):  # it leads a session already, as the trampoline made it
        os.setsid()
    options = _options(arguments)
    output = _take_output()
    _build_environment(options.pipe_directory)
    launcher = Launcher(output, options)
    status = EXIT_FAILED
    try:
        status = launcher.serve()
    except OutputGone:
        pass  # the daemon is gone: nobody to tell
    except BaseException as error:  # noqa: BLE001 -- whatever it is, the children are waited for
        with contextlib.suppress(OutputGone):
            launcher.tell_failure("client_error", f"{type(error).__name__}: {error}")
    finally:
        launcher.outlive_children()
        os._exit(status)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mpswatch-client", description=__doc__)
    parser.add_argument("--backend", choices=("torch", "numpy"), required=True)
    parser.add_argument("--pipe-directory", required=True, metavar="DIR", help="the control daemon's pipe directory")
    parser.add_argument("--fail-in", metavar="PHASE:KIND[:N]|cell", help="tests only: see faults.py")
    return parser.parse_args(arguments)


def _take_output() -> Output:
    """Keep the protocol's pipe under a private number, and let descriptor 1 be the log: libraries print."""
    fd = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 10)
    os.dup2(2, 1)
    mode = os.fstat(fd).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        os.set_blocking(fd, False)  # a full pipe is a reader that is lost, and no reason to wait
    return Output(fd)


def _build_environment(pipe_directory: str) -> None:
    for name in list(os.environ):
        if name.startswith(UNWANTED) and name not in WANTED:
            del os.environ[name]
    for name in THREADS:
        os.environ[name] = "1"
    os.environ["CUDA_MPS_PIPE_DIRECTORY"] = pipe_directory


class Launcher:
    """The lock, the library and the children under way."""

    def __init__(self, output: Output, options: argparse.Namespace) -> None:
        self.output = output
        self.options = options
        self.fault = None if options.fail_in in (None, "cell") else faults.parse(options.fail_in)
        self.children: dict[int, Born] = {}  # by pid: one now, two at once for interference
        self.lock = -1
        self.backend: backends.Backend | None = None
        self._heard = b""

    def serve(self) -> int:
        """Get ready, then do what the daemon asks until it hangs up. The children may still be there afterwards."""
        if not self._take_lock() or not self._import():
            return EXIT_FAILED
        woken, waker = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(waker, False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(0, select.POLLIN | select.POLLHUP)
        poll.register(woken, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if woken in ready:
                os.read(woken, 4096)
                self._bury(os.WNOHANG)
            if 0 in ready and not self._listen():
                return EXIT_DONE

    def _take_lock(self) -> bool:
        """One sweep a pipe directory. The lock is on the open directory: the children inherit it, and it is free
        only when the last of them is gone. Nobody unlocks."""
        try:
            self.lock = os.open(self.options.pipe_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.tell_failure("sweep_running", f"another sweep holds the lock on {self.options.pipe_directory}")
        except PermissionError as error:
            self.tell_failure("permission", str(error))
        except OSError as error:
            self.tell_failure("daemon_absent", str(error))
        else:
            return True
        return False

    def _import(self) -> bool:
        began = time.monotonic()
        try:
            self.backend = backends.load(self.options.backend)
            versions = self.backend.versions()
        except BaseException as error:  # noqa: BLE001 -- an import can raise anything, SystemExit included
            self.tell_failure("client_import_failed", f"{type(error).__name__}: {error}")
            return False
        ignore_signals()  # should the import have set a handler
        gc.freeze()  # a collection in a child would copy every page of the library's objects
        self.output.write(
            "ready",
            dict(
                versions,
                pid=os.getpid(),
                session=os.getsid(0),
                python=platform.python_version(),
                backend=self.options.backend,
                import_seconds=round(time.monotonic() - began, 3),
                lock="held",
                threads=thread_count(),
            ),
        )
        return True

    def _listen(self) -> bool:
        """Read what there is and act on each whole line; False at end-of-file or `end`."""
        chunk = os.read(0, LINE_LIMIT)
        if not chunk:
            return False
        *lines, self._heard = (self._heard + chunk).split(b"\n")
        if len(self._heard) > LINE_LIMIT:
            self.tell_failure("client_nonsense", f"a line of more than {LINE_LIMIT} bytes")
            return False
        for line in lines:
            self._bury(os.WNOHANG)  # who has seen a child's pipe end may ask for the next cell at once
            try:
                word, body = requests.read(line)
                if word == "end":
                    return False
                if isinstance(body, backends.Cell):
                    self._fork(body, self._fault(body))
                else:
                    self._pass_on(word.encode() + b"\n", body)
            except requests.Nonsense as error:
                place: dict[str, Any] = {name: error.cell[name] for name in ("order", "cap") if name in error.cell}
                self.tell_failure(error.reason, str(error), place)
        return True

    def _fault(self, cell: backends.Cell) -> faults.Fault | None:
        if self.options.fail_in != "cell" or cell.fail_in is None:
            return self.fault
        try:
            return faults.parse(cell.fail_in)
        except ValueError as error:
            raise requests.Nonsense(str(error), cell=cell._asdict()) from error

    def _fork(self, cell: backends.Cell, fault: faults.Fault | None) -> None:
        place = {"order": cell.order, "cap": cell.cap}
        under_way = [born.order for born in self.children.values()]
        # two at once only where both were meant, and never three
        if under_way and (under_way != [cell.beside] or cell.order == cell.beside):
            raise requests.Nonsense("a cell is under way", cell=place)
        if thread_count() not in (1, None):
            raise requests.Nonsense(
                f"{thread_count()} threads in the launcher: a fork now could hang its child", "client_error", place
            )
        assert self.backend is not None  # noqa: S101 -- narrows the type: `serve` imported it
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        forked_at = time.monotonic()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(reading)
            os.close(writing)
            raise requests.Nonsense(f"fork: {error}", "client_error", place) from error
        if pid == 0:
            descriptors = child.Descriptors(reading, self.output.fd, self.lock)
            child.live(cell, self.backend, descriptors, forked_at, fault)
        os.close(reading)
        self.children[pid] = Born(cell.order, cell.cap, writing)
        self.output.write("forked", dict(place, pid=pid))
        self._pass_on(b"start\n", cell.order)  # the child says nothing before `forked` has been said

    def _pass_on(self, word: bytes, order: int | None = None) -> None:
        """To the child of that order, or to every one."""
        for born in self.children.values():
            if order not in (None, born.order):
                continue
            with contextlib.suppress(OSError):  # it is leaving already; `gone` follows
                os.write(born.lifeline, word)

    def _bury(self, options: int) -> None:
        """Reap children that have ended, and say so."""
        while self.children:
            pid, status = os.waitpid(-1, options)
            if pid == 0:
                return
            born = self.children.pop(pid, None)
            if born is None:
                continue
            os.close(born.lifeline)
            signalled = os.WIFSIGNALED(status)
            self.output.write(
                "gone",
                {
                    "order": born.order,
                    "cap": born.cap,
                    "pid": pid,
                    "status": status,
                    "exit": None if signalled else os.WEXITSTATUS(status),
                    "signal": os.WTERMSIG(status) if signalled else None,
                },
            )

    def outlive_children(self) -> None:
        """Close the lifelines and wait for the last child: in a container, the end of the launcher is theirs too."""
        for pid, born in list(self.children.items()):
            os.close(born.lifeline)
            self.children[pid] = born._replace(lifeline=os.open(os.devnull, os.O_RDONLY))
        while self.children:
            try:
                self._bury(0)
            except OutputGone:
                pass
            except ChildProcessError:
                return

    def tell_failure(self, reason: str, detail: str, place: dict[str, Any] | None = None) -> None:
        """Say why nothing came of a request, or of the launcher. Raises OutputGone where nobody reads it."""
        body = dict(place or {}, phase="launcher", reason=reason, detail=clip(detail))
        self.output.write("failed", body)


def thread_count() -> int | None:
    """Threads of this process by the kernel's count, None where /proc does not say."""
    try:
        with open("/proc/self/status", "rb") as status:
            for line in status:
                if line.startswith(b"Threads:"):
                    return int(line.split()[1])
    except OSError:
        pass
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
