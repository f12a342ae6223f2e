"""mpswatch itself as a program of the suite: started on a private stack, watched while it sweeps, and left to end.

A `Sweeping` is one `mpswatch run` or `mpswatch sweep`. It knows the launchers that it saw the program start, so that
it can be said when nothing of them is there any more, however the program itself has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from stacks import NEIGHBOURS, ROOT, Stack, Unexpected, gone, wait_until

from mpswatch.rehearsal.stack import Stack as Rehearsal

TAKES_AT_MOST = 60.0
LEAVES_WITHIN = 40.0
CELL_DEADLINE = 4.0
"""Seconds a cell has here: a trial in which nobody ends the client takes no longer."""

# As a terminal starts its foreground: descriptor 0 becomes the controlling terminal of a new session.
IN_A_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Ground(Protocol):
    """What the ways need of a stack, real or rehearsed."""

    number: int
    backend: str
    pipe_directory: Path
    settings: dict[str, Any]

    def clients(self) -> list[int]: ...
    def freeze(self) -> None: ...
    def thaw(self) -> None: ...
    def dead(self) -> list[str]: ...


class RealGround(Stack):
    """A private control daemon with its neighbours, asked who is on it."""

    def __init__(self, root: Path, number: int, neighbours: tuple[str, ...] = NEIGHBOURS) -> None:
        super().__init__(root, number, rehearsal=False, neighbours=neighbours)
        self.root = root
        self.settings: dict[str, Any] = {}
        self.server = ""

    def clients(self) -> list[int]:
        """Managed processes that are not neighbours: those of mpswatch, in this daemon's own words."""
        answer = self.control(f"get_client_list {self.server}") if self.server else "not found"
        if "not found" in answer or not answer.replace("\n", " ").replace(" ", "").isdecimal():
            self.server = (self.control("get_server_list").split() or [""])[0]
            answer = self.control(f"get_client_list {self.server}") if self.server else ""
        listed = {int(word) for word in answer.split() if word.isdecimal()}
        return sorted(listed - {neighbour.pid for neighbour in self.neighbours})

    def freeze(self) -> None:
        os.kill(self.daemon_pid or 0, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.daemon_pid or 0, signal.SIGCONT)


class RehearsedGround:
    """The rehearsal's stack, whose server says itself who left with work in flight."""

    backend = "numpy"
    rehearsal = True

    def __init__(self, root: Path, number: int) -> None:
        self.number = number
        self.root = root
        self._stack = Rehearsal(root / f"stack{number}")
        self._unsafe = 0

    def __enter__(self) -> RehearsedGround:
        self._stack.start()
        self._stack.add_service("busy", busy=True)
        self.pipe_directory = self._stack.pipe_directory
        self.settings = {
            "mps": {"control_program": str(self._stack.control_program)},
            "gpu": {"source": "nvidia-smi", "nvidia_smi": str(self._stack.nvidia_smi)},
        }
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.stop()

    def clients(self) -> list[int]:
        return list(self._stack.status()["daemons"]["default"]["attached_clients"])

    def freeze(self) -> None:
        self._stack.tell("hang")

    def thaw(self) -> None:
        self._stack.tell("resume")

    def dead(self) -> list[str]:
        unsafe = self._stack.unsafe_ends()
        new, self._unsafe = unsafe[self._unsafe :], len(unsafe)
        return [str(end) for end in new]

    def control(self, _command: str) -> str:
        return str(self.clients())


class Sweeping:
    """One program of mpswatch's that sweeps. Ends with the `with` block, which waits for all that it started."""

    def __init__(
        self,
        ground: Ground,
        folder: Path,
        command: str,
        *,
        terminal: bool = False,
        pipe: bool = False,
        log: Path | None = None,
        environment: dict[str, str] | None = None,
        **sweep: object,
    ) -> None:
        self.ground, self.folder, self.archive = ground, folder, folder / "archive"
        self.log = log or folder / f"{command}.log"
        self.launchers: set[int] = set()
        self.seen_clients: set[int] = set()
        self.master = -1
        self.started = time.monotonic()
        argv = [*self._argv(command), "--config.file", str(self._configuration(sweep))]
        if command == "run" and ground.backend == "numpy":  # `run` itself refuses a rehearsal's stack
            argv = [sys.executable, str(ROOT / "tests" / "end_to_end" / "rehearse.py"), argv[-1]]
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {**os.environ, "PYTHONPATH": path, "COLUMNS": "100", **(environment or {})}
        options: dict[str, Any] = {"env": env, "cwd": ROOT, "stdin": subprocess.DEVNULL, "start_new_session": True}
        if terminal:
            self.master, slave = os.openpty()
            os.set_blocking(self.master, False)
            fcntl.fcntl(self.master, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
            argv = [sys.executable, "-I", "-S", "-c", IN_A_TERMINAL, *argv]
            options |= {"stdin": slave, "stdout": slave, "stderr": slave, "start_new_session": False}
        elif pipe:
            self.master, slave = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(self.master, False)
            options |= {"stdout": slave, "stderr": slave}
        else:
            slave = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            options |= {"stdout": slave, "stderr": slave}
        self.program = subprocess.Popen(argv, **options)
        os.close(slave)
        self.pid = self.program.pid

    @staticmethod
    def _argv(command: str) -> list[str]:
        return [sys.executable, "-m", "mpswatch", command]

    def _configuration(self, sweep: dict[str, object]) -> Path:
        self.archive.mkdir(parents=True, exist_ok=True)
        rehearsed = self.ground.backend == "numpy"
        settings: dict[str, Any] = {
            "daemons": [{"name": "stack", "pipe_directory": str(self.ground.pipe_directory)}],
            "poll": {"interval": "6s"},
            "mps": {"deadline": "1500ms"},
            "gpu": {"deadline": "5s"},
            "sweep": {"interval": "1h", "jitter": 0, "settle": 0, "fault_quiet": 0, "cell_deadline": CELL_DEADLINE,
                      "size": 64 if rehearsed else 4096, **sweep},
            "archive": {"directory": str(self.archive)},
            "web": {"listen_address": "127.0.0.1:0"},
            "log": {"format": "json"},
        }  # fmt: skip
        if not rehearsed:
            settings["sweep"] |= {"client": {"python": sys.executable}, "stack_uid": os.getuid()}
        for name, section in self.ground.settings.items():
            settings[name] = {**settings.get(name, {}), **section}
        path = self.folder / "mpswatch.yml"
        path.write_text(json.dumps(settings))
        return path

    # --- what it is doing

    def said(self) -> str:
        """What it has printed so far: its log, or what a terminal or pipe has taken from it."""
        self.listen()
        return self.log.read_text(errors="replace") if self.log.is_file() else ""

    def listen(self) -> None:
        """Take what terminal or pipe hold, so that the program never waits for its reader."""
        while self.master >= 0:
            try:
                chunk = os.read(self.master, 65536)
            except OSError:  # nothing there; EIO: a terminal that nobody holds any more
                return
            if not chunk:
                return
            with self.log.open("ab") as log:
                log.write(chunk)

    def look(self) -> list[int]:
        """The measuring clients on the server now; the program's launchers are remembered on the way."""
        self.listen()
        for pid, parent, session in processes():
            if parent == self.pid and session == pid:
                self.launchers.add(pid)
        clients = self.ground.clients()
        self.seen_clients.update(clients)
        return clients

    def wait_for_a_launcher(self) -> None:
        """Until it has started one: its sweep has begun."""
        self._wait_while(lambda: not self.look() and not self.launchers, "launcher")

    def wait_for_a_client(self) -> None:
        """Until the daemon lists a measuring client."""
        self._wait_while(lambda: not self.look(), "client")

    def _wait_while(self, missing: Callable[[], bool], what: str) -> None:
        until = self.started + TAKES_AT_MOST
        while missing():
            if self.program.poll() is not None:
                raise Unexpected(f"it ended with {self.program.returncode} without a {what}: {self.said()[-1500:]}")
            if refusals := [line for line in self.said().splitlines() if '"no sweep"' in line]:
                raise Unexpected(f"it does not sweep: {refusals}")
            if time.monotonic() > until:
                raise Unexpected(f"no {what} came: {self.said()[-1500:]}")
            time.sleep(0.04)

    # --- what is done to it

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def signal_session(self, number: int) -> None:
        """To every process of its session and of its launchers' sessions: clients included."""
        self.look()
        sessions = {self.pid, *self.launchers}
        for pid, _, session in list(processes()):
            if session in sessions:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def hang_up(self) -> None:
        """Close terminal or pipe."""
        if self.master >= 0:
            self.listen()
            os.close(self.master)
            self.master = -1

    # --- its end

    def ended(self, *codes: int, within: float = LEAVES_WITHIN) -> int:
        """Its exit code, which must be one of these where any are named."""
        wait_until(self._over, within, f"mpswatch stays: {self.said()[-1500:]}")
        code = int(self.program.returncode)
        if codes and code not in codes:
            raise Unexpected(f"mpswatch ended with {code}, not one of {codes}: {self.said()[-1500:]}")
        return code

    def _over(self) -> bool:
        self.listen()
        return self.program.poll() is not None

    def nothing_remains(self) -> float:
        """Wait until launchers and clients are gone from the host and from the daemon's list; seconds it took."""
        began = time.monotonic()

        def none() -> bool:
            return all(gone(pid) for pid in self._left()) and not self.ground.clients()

        wait_until(none, LEAVES_WITHIN, f"something of ours stays: {self._left()}, {self.ground.clients()}")
        if holders := lock_holders(self.ground.pipe_directory):
            raise Unexpected(f"the pipe directory is still locked, by {holders}")
        return time.monotonic() - began

    def _left(self) -> list[int]:
        return [pid for pid, _, session in processes() if session in self.launchers and not gone(pid)]

    def close(self) -> None:
        """Whatever happened: nothing stays stopped, and the program goes before the next one starts."""
        self.signal(signal.SIGCONT)
        self.hang_up()
        if self.program.poll() is None:
            self.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.program.wait(LEAVES_WITHIN)
        if self.program.poll() is None:
            self.program.kill()
            self.program.wait()

    def runs(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_text()) for path in (self.archive / "runs").glob("*.json")]


def processes() -> Iterator[tuple[int, int, int]]:
    """(pid, parent, session) of every process."""
    for entry in os.listdir("/proc"):  # noqa: PTH208 -- names are numbers here
        if entry.isdecimal():
            with contextlib.suppress(OSError, IndexError):
                fields = Path(f"/proc/{entry}/stat").read_bytes().rsplit(b")", 1)[1].split()
                yield int(entry), int(fields[1]), int(fields[3])


def lock_holders(directory: Path) -> list[int]:
    inode = f":{directory.stat().st_ino} "
    return [int(line.split()[4]) for line in Path("/proc/locks").read_text().splitlines() if inode in line]
