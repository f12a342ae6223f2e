"""A private stack for the GPU suite: its own control daemon (or the rehearsal's server), busy neighbours, launchers.

Nothing outside the temporary folder is touched: pipe and log directories are private, and the daemon that is told to
quit at the end is the one started here.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from mpswatch.process.launch import Launched, LauncherGone, launch  # noqa: E402 -- the path above is for plain python3

CONTROL = "nvidia-cuda-mps-control"
NEIGHBOURS = ("matmul", "small")
BEATS_THAT_PROVE_LIFE = 3
STALLED_SECONDS = 20.0
NEIGHBOUR_TRIES = 4


class Unexpected(Exception):  # noqa: N818 -- reads so where it is caught
    """A launcher, neighbour or daemon did not behave as the suite needs; the trial does not count."""


def environment(pipe_directory: Path, log_directory: Path) -> dict[str, str]:
    """What programs of a private stack get: the private directories, and what the interpreter and driver need."""
    kept = ("PATH", "HOME", "LD_LIBRARY_PATH", "PYTHONPATH", "CUDA_VISIBLE_DEVICES", "LC_CTYPE", "TMPDIR")
    env = {name: os.environ[name] for name in kept if name in os.environ}
    env |= {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
    env |= {"CUDA_MPS_PIPE_DIRECTORY": str(pipe_directory), "CUDA_MPS_LOG_DIRECTORY": str(log_directory)}
    return env


class Lines:
    """Lines of JSON from a pipe, without ever waiting for more than is asked."""

    def __init__(self, fd: int, name: str) -> None:
        self.fd, self.name, self.ended = fd, name, False
        self._got = b""

    def next(self, seconds: float) -> dict[str, Any] | None:
        """The next line's object; None at end-of-file or when none came in time."""
        until = time.monotonic() + seconds
        while b"\n" not in self._got:
            if self.ended or not select.select([self.fd], [], [], max(0.0, until - time.monotonic()))[0]:
                return None
            chunk = os.read(self.fd, 65536)
            self.ended = not chunk
            self._got += chunk
        line, _, self._got = self._got.partition(b"\n")
        try:
            return json.loads(line)
        except ValueError as error:
            raise Unexpected(f"{self.name} said {line[:200]!r}") from error


class Program:
    """A program of the nursery's: its pid and its two pipes. `hang_up` asks it to leave."""

    def __init__(self, pid: int, send_fd: int, receive_fd: int, name: str) -> None:
        self.pid, self.send_fd, self.name = pid, send_fd, name
        self.lines = Lines(receive_fd, name)
        self._open = True

    def close(self) -> None:
        if self._open:
            self._open = False
            os.close(self.send_fd)
            os.close(self.lines.fd)


class Talk:
    """A conversation with one launcher."""

    def __init__(self, launched: Launched, *, pid_namespace: bool = False) -> None:
        self.launched, self.pid, self._pid_namespace = launched, launched.pid, pid_namespace
        self.lines = Lines(launched.receive_fd, "launcher")
        self.heard: list[tuple[float, dict[str, Any]]] = []
        self.child = -1
        """The newest child."""
        self.children: set[int] = set()
        """All that are not known to have gone."""

    def say(self, **message: Any) -> None:
        try:
            self.launched.send(json.dumps(message).encode() + b"\n")
        except LauncherGone as error:
            raise Unexpected(error.detail) from error

    def hear(self, *words: str, seconds: float = 60.0) -> dict[str, Any]:
        """The body of the next line, which must be one of these words; its word is kept under `word`."""
        message = self.lines.next(seconds)
        if message is None:
            raise Unexpected(f"{words} expected, {'end-of-file' if self.lines.ended else 'nothing'} came")
        self.heard.append((time.monotonic(), message))
        ((word, body),) = message.items()
        if word not in words:
            raise Unexpected(f"{words} expected, {json.dumps(message)[:600]} came")
        if word == "forked" and not self._pid_namespace:  # in there, it says a number that means another here
            self.child = body["pid"]
            self.children.add(self.child)
        if word == "gone":
            self.children.discard(body["pid"])
        return {**body, "word": word}


class Stack:
    """One private control daemon with its neighbours, or the rehearsal's server in its place."""

    def __init__(self, root: Path, number: int, *, rehearsal: bool, neighbours: tuple[str, ...] = NEIGHBOURS) -> None:
        self.number, self.rehearsal, self.kinds = number, rehearsal, neighbours
        self.backend = "numpy" if rehearsal else "torch"
        self.pipe_directory, self.log_directory = root / f"pipe{number}", root / f"log{number}"
        self.log = root / f"clients{number}.log"
        self.env = environment(self.pipe_directory, self.log_directory)
        self.neighbours: list[Program] = []
        self.daemon_pid: int | None = None
        self._orders: socket.socket | None = None
        self._server: subprocess.Popen | None = None
        self._journal_read = 0
        self._fault_lines = 0

    def __enter__(self) -> Stack:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        self.pipe_directory.mkdir(parents=True)
        self.log_directory.mkdir()
        if self.rehearsal:
            program = ROOT / "tests" / "client" / "rehearsal.py"
            self._server = subprocess.Popen([sys.executable, "-I", str(program), str(self.pipe_directory)])
            wait_until((self.pipe_directory / "rehearsal").exists, 10, "the rehearsal's server does not start")
        else:
            subprocess.run([CONTROL, "-d"], env=self.env, check=True, timeout=30)
            pid_file = self.pipe_directory / f"{CONTROL}.pid"
            wait_until(lambda: read(pid_file).strip().isdecimal(), 10, "the control daemon writes no pid file")
            self.daemon_pid = int(pid_file.read_text())
        self._start_nursery()
        kinds, self.kinds = self.kinds, ()
        self.add_neighbours(kinds)

    def add_neighbours(self, kinds: tuple[str, ...]) -> None:
        """More neighbours at work."""
        for kind in kinds:
            self.neighbours.append(self._neighbour(kind))
            self.kinds = (*self.kinds, kind)

    def __exit__(self, *_: object) -> None:
        for neighbour in self.neighbours:
            neighbour.close()
            with contextlib.suppress(Unexpected):
                wait_until(lambda pid=neighbour.pid: gone(pid), 20, "neighbour stays")
        if self._orders is not None:
            self._orders.close()
        if self._server is not None:
            self._server.kill()
            self._server.wait()
        if self.daemon_pid is not None:
            print(f"[stack {self.number}] quit: {self.control('quit')!r}", flush=True)
            with contextlib.suppress(Unexpected):
                wait_until(lambda: gone(self.daemon_pid), 30, "the private daemon stays")
            print(f"[stack {self.number}] private daemon gone: {gone(self.daemon_pid)}", flush=True)

    def control(self, command: str) -> str:
        """Ask the private daemon something; `quit` is only ever said here, to a daemon that we started."""
        answer = subprocess.run(
            [CONTROL], input=command + "\n", env=self.env, capture_output=True, text=True, timeout=30, check=False
        )
        return (answer.stdout + answer.stderr).strip()

    def _start_nursery(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with self.log.open("ab") as log:
            subprocess.Popen(
                [sys.executable, str(HERE / "nursery.py"), self.backend],
                stdin=theirs,
                stdout=log,
                stderr=log,
                env=self.env,
            )
        theirs.close()
        ours.settimeout(120)
        self._orders = ours
        ready = json.loads(ours.recv(65536) or b"{}")
        if ready.get("threads", 1) != 1:
            print(f"[stack {self.number}] the nursery has {ready['threads']} threads: its forks may hang", flush=True)
        if "ready" not in ready:
            raise Unexpected(f"the nursery said {ready}; its log: {self.log.read_text()[-2000:]}")

    def birth(self, what: str, log: Path | None = None, **order: Any) -> tuple[int, int, int]:
        """Have the nursery fork one: pid, the descriptor it listens to, the one it speaks on."""
        stdin, send_fd = os.pipe2(os.O_CLOEXEC)
        receive_fd, stdout = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(send_fd, False)
        os.set_blocking(receive_fd, False)
        log_fd = os.open(log or self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
        message = json.dumps({"be": what, "pipe_directory": str(self.pipe_directory), **order}).encode()
        socket.send_fds(self._orders, [message], [stdin, stdout, log_fd])
        pid = json.loads(self._orders.recv(65536))["pid"]
        for fd in (stdin, stdout, log_fd):
            os.close(fd)
        return pid, send_fd, receive_fd

    def _neighbour(self, kind: str) -> Program:
        """A neighbour at work. Asked for again where a server that has just had a fault takes nobody yet."""
        said: list[Any] = []
        for _ in range(NEIGHBOUR_TRIES):
            neighbour = Program(*self.birth("neighbour", kind=kind), f"neighbour {kind}")
            first = neighbour.lines.next(60)
            if first and "ready" in first:
                return neighbour
            said.append(first)
            neighbour.close()
            time.sleep(1.0)
        raise Unexpected(f"neighbours said {said}; log: {read(self.log)[-2000:]}")

    def warm_launcher(self, *arguments: str, log: Path | None = None, pid_namespace: bool = False) -> Talk:
        """A launcher forked from the nursery, ready."""
        argv = ["--backend", self.backend, "--pipe-directory", str(self.pipe_directory), *arguments]
        born = self.birth("launcher", log=log, arguments=argv, pid_namespace=pid_namespace)
        talk = Talk(Launched(*born), pid_namespace=pid_namespace)
        try:
            talk.hear("ready")
        except Unexpected as error:
            raise Unexpected(f"{error}; log: {read(self.log)[-500:]}") from error
        return talk

    def cold_launcher(self, client: Path, *arguments: str) -> Talk:
        """A launcher started as the daemon starts it: trampoline, exec, import."""
        argv = [sys.executable, "-B", str(client), "--backend", self.backend]
        with self.log.open("ab") as log:
            argv += ["--pipe-directory", str(self.pipe_directory), *arguments]
            return Talk(launch(argv, env=self.env, log_fd=log.fileno()))

    def dead(self) -> list[str]:
        """Who has died since the last call, and of what; the dead are replaced. Empty: all live and do new work."""
        died = []
        causes = [self._last_words(neighbour) for neighbour in self.neighbours]
        for place, neighbour in enumerate(self.neighbours):
            cause = causes[place] or self._cause_of_death(neighbour)
            if cause is not None:
                died.append(f"{neighbour.name}: {cause}")
                neighbour.close()
                self.neighbours[place] = self._neighbour(self.kinds[place])
        if self.rehearsal:
            died += self._killed_in_rehearsal()
        faults = self.faults()
        if faults and not died:
            died.append(f"server.log: {faults[-1]}")
        return died

    def _last_words(self, neighbour: Program) -> str | None:
        while (line := neighbour.lines.next(0)) is not None:  # a beat from before now is no proof of life
            if "dead" in line:
                return str(line["dead"])
        return None

    def _cause_of_death(self, neighbour: Program) -> str | None:
        for _ in range(BEATS_THAT_PROVE_LIFE):
            line = neighbour.lines.next(STALLED_SECONDS)
            if line is None:
                return "gone without a word" if neighbour.lines.ended else f"no beat for {STALLED_SECONDS:g} s"
            if "dead" in line:
                return str(line["dead"])
        return None

    def beats(self, seconds: float) -> dict[str, list[float]]:
        """TFLOPS of each neighbour over the next seconds."""
        until = time.monotonic() + seconds
        seen: dict[str, list[float]] = {neighbour.name: [] for neighbour in self.neighbours}
        while time.monotonic() < until:
            for neighbour in self.neighbours:
                while (line := neighbour.lines.next(0)) is not None:
                    seen[neighbour.name].append(line.get("tflops", -1.0))
            time.sleep(0.05)
        return seen

    def faults(self) -> list[str]:
        """New lines of server.log that tell of a fatal GPU error."""
        log = self.log_directory / "server.log"
        lines = [line for line in read(log).splitlines() if "fatal GPU error" in line]
        new, self._fault_lines = lines[self._fault_lines :], len(lines)
        return new

    def _killed_in_rehearsal(self) -> list[str]:
        lines = [json.loads(line) for line in read(self.pipe_directory / "journal.jsonl").splitlines()]
        new, self._journal_read = lines[self._journal_read :], len(lines)
        return [f"pid {line['pid']} left {line['in_flight']} pieces in flight" for line in new if line.get("in_flight")]


def read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def gone(pid: int) -> bool:
    """Whether the process has ended, reaped or not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()[0] in "ZX"
    return True


def wait_until(condition: Any, seconds: float, otherwise: str) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise Unexpected(otherwise)
        time.sleep(0.005)


def missing() -> list[str]:
    """What this host lacks for the suite, one line each, with the remedy."""
    lacks = []
    if shutil.which(CONTROL) is None:
        lacks.append(f"{CONTROL} is not on PATH (in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility)")
    if shutil.which("nvidia-smi") is None:
        lacks.append("nvidia-smi is not on PATH")
    else:
        others = subprocess.run(
            ["nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        if others.returncode != 0:
            lacks.append(f"nvidia-smi: {(others.stdout + others.stderr).strip()}")
        elif others.stdout.strip():
            lacks.append("the GPU has other processes, and this suite kills neighbours: " + others.stdout.strip())
    return lacks


def driver() -> str:
    answer = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return answer.stdout.strip().splitlines()[0] if answer.stdout.strip() else "unknown"
