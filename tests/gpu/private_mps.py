"""Private control daemons for identity.py, light clients on them, and what control.log says of who came.

Every daemon here was started here, and only here it is told anything. With a rehearsal the same on a Stack.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

CONTROL = "nvidia-cuda-mps-control"
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
"""For the clients, which may be of any user: one that anybody may execute."""


class Clients:
    """A batch of light clients. `pids` are as this pid namespace numbers them."""

    def __init__(
        self,
        work: Path,
        pipe: Path,
        number: int = 0,
        *words: str,
        uid: int | None = None,
        namespaced: bool = False,
        rehearsal: bool = False,
        more: Mapping[str, str] | None = None,
    ) -> None:
        self.number = max(number, 1)
        wrapped = ["unshare", "--pid", "--fork", "--mount-proc"] if namespaced else []
        if uid is not None:
            wrapped = ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups"]
        self.said = work / f"light-{time.monotonic_ns()}.txt"
        environment = {key: value for key, value in os.environ.items() if not key.startswith("CUDA_MPS_")}
        environment |= {"CUDA_MPS_PIPE_DIRECTORY": str(pipe), "HOME": "/tmp", "CUDA_CACHE_DISABLE": "1"}
        environment |= more or {}
        if rehearsal:
            environment["LIGHT_REHEARSAL"] = "1"
        with self.said.open("wb") as out:
            self.program = subprocess.Popen(
                [*wrapped, PYTHON, str(work / "light.py"), str(number), *words],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def ready(self) -> int:
        return sum(line.startswith("ready ") for line in self.said.read_text().splitlines())

    def uuids(self) -> list[str]:
        """The GPUs that they say they are on, in the order in which they took them."""
        lines = [line.split() for line in self.said.read_text().splitlines()]
        return [uuid for words in lines if words[:1] == ["ready"] and len(words) > 2 for uuid in words[2].split(",")]

    def wait(self, seconds: float = 40.0) -> Clients:
        until(lambda: self.ready() >= self.number or self.program.poll() is not None, seconds)
        if self.ready() < self.number:
            raise RuntimeError(f"{self.ready()} of {self.number} clients came: {self.said.read_text()[-1000:]!r}")
        return self

    def pids(self) -> list[int]:
        """The processes that hold contexts: without children the program itself, else the last of each line."""
        return sorted(_leaves(self.program.pid))

    def leave(self) -> None:
        if self.program.stdin is not None and not self.program.stdin.closed:
            self.program.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.program.wait(20)

    def kill(self) -> None:
        """For one that waits in the daemon's queue, without a context: nothing of it is in flight."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.program.pid, signal.SIGKILL)
        self.program.wait(10)


def _leaves(pid: int) -> list[int]:
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [leaf for child in children for leaf in _leaves(child)] if children else [pid]


class Mps:
    """One control daemon with directories of its own."""

    rehearsal = False

    def __init__(self, work: Path, name: str, *flags: str, devices: str | None = None) -> None:
        self.work, self.name = work, name
        self.pipe, self.log = work / name / "pipe", work / name / "log"
        for directory in (work / name, self.pipe, self.log):
            directory.mkdir()
            directory.chmod(0o755)
        self.control_program, self.nvidia_smi = CONTROL, "nvidia-smi"
        self.environment = os.environ | {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe), "CUDA_MPS_LOG_DIRECTORY": str(self.log),
        }  # fmt: skip
        if devices is not None:
            self.environment["CUDA_VISIBLE_DEVICES"] = devices
        subprocess.run([CONTROL, "-d", *flags], env=self.environment, check=True, timeout=30, start_new_session=True)

    def __enter__(self) -> Mps:
        return self

    def __exit__(self, *_: object) -> None:
        pid = (self.pipe / f"{CONTROL}.pid").read_text().strip()
        servers = self.servers()
        self.ask("quit")
        if not until((lambda: not Path(f"/proc/{pid}").exists()), 5, strict=False):
            self._end(int(pid), servers)

    def _end(self, pid: int, servers: list[int]) -> None:
        """A private daemon that answers nobody is ended, and the servers that it started: no client is left on them."""
        started = [line.partition("Starting new server ")[2] for line in self.lines()]
        servers.extend(int(words.split()[0]) for words in started if words)
        for end in (pid, *servers):
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                if "nvidia-cuda-mps" in Path(f"/proc/{end}/comm").read_text():
                    os.kill(end, signal.SIGKILL)
                    print(f"{self.name}: ended {end}", flush=True)

    def clients(self, number: int = 0, *words: str, **how: object) -> Clients:
        return Clients(self.work, self.pipe, number, *words, rehearsal=self.rehearsal, **how)  # type: ignore[arg-type]

    def ask(self, command: str) -> str:
        """The answer, empty where none came in time: a daemon that has started a server for a dead client is silent."""
        try:
            answer = subprocess.run(
                [self.control_program], input=command + "\n", env=self.environment, capture_output=True, text=True,
                timeout=6, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            print(f"{self.name}: no answer to {command!r}", flush=True)
            return ""
        return (answer.stdout + answer.stderr).strip()

    def raw(self, *servers: int) -> tuple[bytes, bytes, int]:
        """What a whole look is answered, byte by byte, and the exit status."""
        from mpswatch.mps.commands import script

        answer = subprocess.run(
            [self.control_program], input=script(servers, with_contexts=True), env=self.environment,
            capture_output=True, timeout=10, check=False,
        )  # fmt: skip
        return answer.stdout, answer.stderr, answer.returncode

    def servers(self) -> list[int]:
        return [int(word) for word in self.ask("get_server_list").split() if word.isdigit()]

    def replace_server(self) -> None:
        """End the idle server and start another, as an administrator may."""
        (old,) = self.servers()
        print(f"shutdown_server: {self.ask(f'shutdown_server {old}')!r}", flush=True)
        until(lambda: old not in self.servers(), 20)
        if not self.servers():
            print(f"start_server: {self.ask(f'start_server -uid {os.getuid()}')!r}", flush=True)
        until(self.servers, 20)

    def lines(self) -> list[str]:
        """control.log without the questions that were asked on it."""
        kept, in_question = [], False
        path = self.log / "control.log"
        for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
            said = line.partition("] ")[2]
            if said.startswith("NEW UI"):
                in_question = True
                if kept and kept[-1].endswith("Accepting connection..."):
                    kept.pop()
            elif said.startswith("UI closed"):
                in_question = False
            elif not in_question:
                kept.append(line)
        return kept

    def clients_seen(self) -> list[str]:
        """The lines that tell of a client that came."""
        return [line for line in self.lines() if "NEW CLIENT" in line]


class Rehearsed(Mps):
    """The same on a rehearsal stack."""

    rehearsal = True

    def __init__(self, work: Path, name: str, *flags: str) -> None:
        from mpswatch.rehearsal.stack import Stack

        self.work, self.name = work, name
        self.stack = Stack(work / name, multi_user="-multiuser-server" in flags).start()
        self.pipe, self.log = self.stack.pipe_directory, self.stack.log_directory
        self.control_program, self.nvidia_smi = str(self.stack.control_program), str(self.stack.nvidia_smi)
        self.environment = os.environ | {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipe)}

    def __exit__(self, *_: object) -> None:
        self.stack.stop()

    def clients_seen(self) -> list[str]:
        """A rehearsal does not name the client that a server was started for; a real daemon does."""
        return [line for line in self.lines() if "NEW CLIENT" in line or "Starting new server" in line]

    def replace_server(self) -> None:
        self.stack.tell("die", what="server")
        self.stack.add_service("another", busy=False)


class Watching:
    """`mpswatch run` with this configuration: one sweep is tried at once. Ended by SIGTERM with the `with` block."""

    def __init__(self, configuration: Path, *, rehearsal: bool) -> None:
        self.log = configuration.with_suffix(".log")
        self.archive = Path(json.loads(configuration.read_text())["archive"]["directory"])
        argv = [sys.executable, "-m", "mpswatch", "run", "--config.file", str(configuration)]
        if rehearsal:  # `run` itself refuses a rehearsal's stack
            argv = [sys.executable, str(ROOT / "tests" / "end_to_end" / "rehearse.py"), str(configuration)]
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        with self.log.open("wb") as log:
            self.program = subprocess.Popen(
                argv, env=os.environ | {"PYTHONPATH": path}, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, *_: object) -> None:
        self.program.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.program.wait(20)

    def lines(self) -> list[dict[str, Any]]:
        """Its log, as far as it is JSON."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Those of its journal."""
        path = self.archive / "journal.jsonl"
        journal = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [event for event in journal if event["kind"] == kind]

    def metrics(self) -> list[str]:
        """The lines of one scrape."""
        (address,) = [line["addresses"][0] for line in self.lines() if str(line.get("event")).startswith("serving")]
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            return str(answer.read().decode()).splitlines()


def came(before: list[str], after: list[str]) -> int:
    """How many clients came between two `clients_seen`: by pid, as one may be named twice."""
    new = after[len(before) :]
    return len({line.partition("NEW CLIENT ")[2].split(" ")[0] or line for line in new})


def until(condition: Callable[[], object], seconds: float, *, strict: bool = True) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            if strict:
                raise RuntimeError(f"not within {seconds:g} s")
            return False
        time.sleep(0.05)
    return True


def configure(work: Path, daemons: Sequence[Mps], *, archive: Path | None = None, **sweep: object) -> Path:
    """A configuration file for these daemons, with an archive of its own unless one is given.

    What `identity.py` expects is in it.
    """
    first, number = daemons[0], time.monotonic_ns()
    settings = {
        "host": "h200",
        "daemons": [
            {"name": mps.name, "pipe_directory": str(mps.pipe), "log_directory": str(mps.log)} for mps in daemons
        ],
        "mps": {"control_program": first.control_program},
        "gpu": {"source": "nvidia-smi" if first.rehearsal else "auto", "nvidia_smi": first.nvidia_smi},
        "tenants": {
            "expected": [
                {"name": "embedder", "match": {"command": "*--as embedder*"}, "minimum": 2},
                {"name": "ranker", "match": {"command": "*--as ranker*"}},
                {"name": "nowhere", "match": {"unit": "no-such-unit.service"}},
            ],
            "welcome": [{"name": "monitoring", "match": {"command": "*--as monitoring*"}}],
        },
        "sweep": {
            "settle": "0s", "interval": "1h", "jitter": 0, "caps": [100, 50], "size": 128 if first.rehearsal else 4096,
            "iters": 4 if first.rehearsal else 80, "client": {"python": sys.executable}, **sweep,
        },
        "archive": {"directory": str(archive or work / f"archive-{number}")},
        "web": {"listen_address": "127.0.0.1:0"},
        "log": {"format": "json"},
    }  # fmt: skip
    path = work / f"configuration-{number}.yml"
    path.write_text(json.dumps(settings))
    return path


def lacks(*, rehearsal: bool) -> list[str]:
    """What this host lacks for the script."""
    found = [] if os.geteuid() == 0 else ["it must run as root: it starts processes of several users"]
    found += [f"{program} is not on PATH" for program in ("setpriv", "unshare") if shutil.which(program) is None]
    if not rehearsal:
        from stacks import missing

        found += missing()
    return found
