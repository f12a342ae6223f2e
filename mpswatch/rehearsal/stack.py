"""An MPS stack without a GPU, for demonstrations and tests, as a context manager."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import mpswatch
from mpswatch.rehearsal.layout import Layout, RehearsalError, claim
from mpswatch.rehearsal.tell import tell

START_PATIENCE = 20.0  # seconds
STOP_PATIENCE = 10.0


class Stack:
    """A rehearsal in `directory`: control daemon `default`, its server, services, foreign tenants, all real processes.

    Its processes end with `stop`, and soon after the process that started it, however that ends. Measuring
    clients that attach are never signalled. Options of the control daemon: `multi_user`, `server_uid` (a server from
    the start; else it comes with its first client, for that client's uid), `default_percentage`, `context_limit`.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        gpus: int = 1,
        multi_user: bool = False,
        server_uid: int | None = None,
        default_percentage: float = 100.0,
        context_limit: int = 48,
    ) -> None:
        self.directory = Path(directory).resolve()
        self._layout = Layout(self.directory)
        self._gpus = gpus
        self._options: dict[str, object] = {
            "devices": tuple(range(gpus)),
            "multi_user": multi_user,
            "server_uid": server_uid,
            "default_percentage": default_percentage,
            "context_limit": context_limit,
        }
        self._director: subprocess.Popen[bytes] | None = None

    @property
    def pipe_directory(self) -> Path:
        """The pipe directory of the daemon `default`."""
        return self.pipe_directory_of("default")

    @property
    def log_directory(self) -> Path:
        """Where the daemon `default` writes control.log and server.log."""
        return self._layout.daemon("default").log

    @property
    def control_program(self) -> Path:
        """Executable that speaks the control program's protocol (stdin, CUDA_MPS_PIPE_DIRECTORY)."""
        return self._layout.control_program

    @property
    def nvidia_smi(self) -> Path:
        """Executable that answers `-q -x`, `-L` and `--query-compute-apps`."""
        return self._layout.nvidia_smi

    def pipe_directory_of(self, daemon: str) -> Path:
        """As `pipe_directory`, of a daemon made by `add_daemon`."""
        return self._layout.daemon(daemon).pipe

    def log_directory_of(self, daemon: str) -> Path:
        """As `log_directory`, of a daemon made by `add_daemon`."""
        return self._layout.daemon(daemon).log

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs to find this stack and nothing else: pipe directory, and the programs on PATH."""
        path = f"{self.control_program.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipe_directory), "PATH": path}

    def start(self) -> Self:
        """Start the stack and its control daemon; `RehearsalError` where the directory is not for a rehearsal."""
        claim(self._layout)
        # In a session of its own: a terminal's Ctrl-C is for its owner, who stops it in order.
        source = Path(mpswatch.__file__).resolve().parent.parent
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source), *_given("PYTHONPATH")])}
        self._director = subprocess.Popen(
            [sys.executable, "-m", "mpswatch.rehearsal", "direct", str(self.directory), str(self._gpus)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None,
            cwd="/",
            env=environment,
            start_new_session=True,
        )
        try:
            self._wait_until_ready(self._director)
            self.tell("daemon", name="default", **self._options)
        except BaseException:
            self.stop()
            raise
        return self

    def _wait_until_ready(self, director: subprocess.Popen[bytes]) -> None:
        assert director.stdout is not None  # noqa: S101 (asked for above)
        ready, _, _ = select.select([director.stdout], [], [], START_PATIENCE)
        if not ready or os.read(director.stdout.fileno(), 64) != b"ready\n":
            raise RehearsalError("the rehearsal did not start; what it said is on standard error")

    def stop(self) -> None:
        """End the stack's processes and remove its directory; doing so twice is no error."""
        director, self._director = self._director, None
        if director is None:
            return
        for pipe in (director.stdin, director.stdout):
            if pipe is not None:
                pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            director.wait(STOP_PATIENCE)
            return
        director.kill()  # its children end with it
        director.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- what happens in it ------------------------------------------------------------------------

    def tell(self, order: str, **details: object) -> dict[str, Any]:
        """Any order of tell.py."""
        return tell(self.directory, order, **details)

    def status(self) -> dict[str, Any]:
        """What the stack knows of itself (tell.py, `status`)."""
        return self.tell("status")

    def add_service(self, name: str, **looks: object) -> int:
        """A process that attaches to the daemon and is a busy neighbour unless `busy=False`; returns its pid."""
        return int(self.tell("service", name=name, **looks)["pid"])

    def add_foreign(self, name: str, memory_mib: int | Mapping[int, int] = 658, **looks: object) -> int:
        """A process on the GPU outside MPS; `memory_mib` for the first device, or by device. Returns its pid."""
        memory = memory_mib if isinstance(memory_mib, int) else {str(key): mib for key, mib in memory_mib.items()}
        return int(self.tell("foreign", name=name, memory_mib=memory, **looks)["pid"])

    def add_daemon(self, name: str, *, devices: Sequence[int] = (0,), **options: object) -> Path:
        """One more control daemon; returns its pipe directory."""
        return Path(self.tell("daemon", name=name, devices=tuple(devices), **options)["pipe_directory"])

    def remove(self, pid: int) -> None:
        """End a tenant that the stack made; it is gone from /proc afterwards."""
        self.tell("remove", pid=pid)

    @property
    def server_pid(self) -> int | None:
        """The pid of the daemon `default`'s server, None where there is none."""
        server = self.status()["daemons"]["default"]["server"]
        return int(server["pid"]) if server else None

    def harmed_neighbours(self) -> list[int]:
        """Services that died because a client of any daemon here ended with work in flight (or by order `break`)."""
        return [pid for daemon in self.status()["daemons"].values() for pid in daemon["harmed_neighbours"]]

    def unsafe_ends(self) -> list[dict[str, Any]]:
        """Each client that ended with work in flight, whether or not somebody was there to die of it."""
        return [end for daemon in self.status()["daemons"].values() for end in daemon["unsafe_ends"] if end["by"]]

    def wait_for_clients(self, pids: Sequence[int], *, daemon: str = "default", seconds: float = 5.0) -> None:
        """Until exactly these measuring clients are attached, or `RehearsalError` when that takes too long."""
        until = time.monotonic() + seconds
        while sorted(attached := self.status()["daemons"][daemon]["attached_clients"]) != sorted(pids):
            if time.monotonic() > until:
                raise RehearsalError(f"attached are {attached}, not {list(pids)}")
            time.sleep(0.01)


def _given(variable: str) -> list[str]:
    return [value] if (value := os.environ.get(variable)) else []
