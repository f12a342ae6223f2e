"""Whole daemons as real processes on rehearsal stacks."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from mpswatch.rehearsal.stack import Stack

PATIENCE = 30.0
"""Seconds that anything may take on a machine that is busy with other things."""

SETTINGS: dict[str, Any] = {
    "poll": {"interval": "300ms"},
    "mps": {"deadline": "800ms"},
    "gpu": {"deadline": "800ms"},
    "sweep": {
        "interval": "1h",
        "jitter": 0,
        "settle": 0,
        "fault_quiet": 0,
        "caps": [100, 50],
        "size": 64,
        "iters": 20,
    },
    "web": {"listen_address": "127.0.0.1:0"},
    "log": {"level": "debug", "format": "json"},
}


def wait_until(what: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Give what `what` returns once that is true; fail when it does not come."""
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(httpx.TransportError):
            found = what()
            if found:
                return found
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)


class Daemon:
    """One daemon as a process, with its log, its journal and its page."""

    def __init__(self, argv: list[str], archive: Path, log: Path, environment: Mapping[str, str]) -> None:
        self.archive = archive
        self._log = log
        with log.open("ab") as out:
            self.program = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self.pid = self.program.pid

    def log_lines(self) -> list[dict[str, Any]]:
        found = []
        for line in self._log.read_text().splitlines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found

    def said(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.log_lines() if line.get("event", "").startswith(event)]

    @property
    def url(self) -> str:
        def served() -> str | None:
            assert self.program.poll() is None, self._log.read_text()
            lines = self.said("serving")
            return lines[-1]["addresses"][0] if lines else None

        return f"http://{wait_until(served)}"

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", timeout=10, verify=False)  # noqa: S501 - plain HTTP: no time for certificates

    def metrics(self) -> dict[str, dict[frozenset[tuple[str, str]], float]]:
        """Every sample by name and labels."""
        found: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
        for family in text_string_to_metric_families(self.get("/metrics").text):
            for sample in family.samples:
                found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
        return found

    def value(self, name: str, **labels: str) -> float | None:
        """The one sample of `name` with these labels among its own; None when there is none."""
        found = [value for key, value in self.metrics().get(name, {}).items() if labels.items() <= dict(key).items()]
        assert len(found) <= 1, f"{name} {labels}: {found}"
        return found[0] if found else None

    def journal(self) -> list[dict[str, Any]]:
        with contextlib.suppress(FileNotFoundError):
            return [json.loads(line) for line in (self.archive / "journal.jsonl").read_text().splitlines()]
        return []

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.journal() if event["kind"] == kind]

    def runs(self) -> list[dict[str, Any]]:
        """The archived runs, oldest first."""
        paths = sorted((self.archive / "runs").glob("*.json"), key=lambda path: path.name.split("_")[2])
        return [json.loads(path.read_text()) for path in paths]

    def signal(self, number: int) -> None:
        self.program.send_signal(number)

    def wait(self, seconds: float = PATIENCE) -> int:
        return self.program.wait(seconds)

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def finish(self) -> None:
        if self.program.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.program.wait(PATIENCE)
        if self.program.poll() is None:
            self.program.kill()
            self.program.wait()


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory whose path is short enough for sockets."""
    path = Path(tempfile.mkdtemp(prefix="mpsw-"))
    path.chmod(0o755)  # servers of other users come through
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def harmed_on_purpose() -> list[int]:
    """Services that the test itself had die of a fault."""
    return []


@pytest.fixture
def stack(short_path: Path, harmed_on_purpose: list[int]) -> Iterator[Stack]:
    """A rehearsal with two managed services that are idle and one foreign tenant; nobody may come to harm in it."""
    with Stack(short_path / "stack") as running:
        running.add_service("chat", memory_mib=636, busy=False)
        running.add_service("embedding", memory_mib=412, busy=False)
        running.add_foreign("notebook", 658)
        yield running
        assert running.unsafe_ends() == []
        assert running.harmed_neighbours() == harmed_on_purpose


Start = Callable[..., Daemon]


@pytest.fixture
def configuration(stack: Stack, short_path: Path) -> Callable[..., Path]:
    """Write the configuration of a daemon on the stack; the sections given go before the usual ones."""

    def write(**sections: Any) -> Path:
        settings = {
            **SETTINGS,
            "daemons": [{"name": "stack", "pipe_directory": str(stack.pipe_directory)}],
            "archive": {"directory": str(short_path / "archive")},
        }
        settings["mps"] = {**settings["mps"], "control_program": str(stack.control_program)}
        settings["gpu"] = {**settings["gpu"], "source": "nvidia-smi", "nvidia_smi": str(stack.nvidia_smi)}
        for name, section in sections.items():
            settings[name] = {**settings.get(name, {}), **section} if isinstance(section, dict) else section
        path = short_path / "mpswatch.yml"
        path.write_text(yaml.safe_dump(settings))
        return path

    return write


@pytest.fixture
def start(configuration: Callable[..., Path], short_path: Path) -> Iterator[Start]:
    """Start a daemon on the stack; whatever still runs at the end is stopped."""
    running: list[Daemon] = []

    def begin(environment: Mapping[str, str] | None = None, **sections: Any) -> Daemon:
        path = configuration(**sections)
        archive = Path(yaml.safe_load(path.read_text())["archive"]["directory"])
        argv = [sys.executable, str(Path(__file__).parent / "rehearse.py"), str(path)]
        log = short_path / f"daemon-{len(running)}.log"
        running.append(Daemon(argv, archive, log, environment or {}))
        return running[-1]

    yield begin
    for daemon in running:
        daemon.finish()


@pytest.fixture
def beside(configuration: Callable[..., Path], short_path: Path) -> Iterator[Start]:
    """Begin an `mpswatch` command that goes on beside the daemon, in a configuration of its own."""
    running: list[Daemon] = []

    def begin(*arguments: str, **sections: Any) -> Daemon:
        path = configuration(**sections)
        own = path.rename(path.with_name("beside.yml"))
        argv = [sys.executable, "-m", "mpswatch", *arguments, "--config.file", str(own)]
        running.append(Daemon(argv, short_path / "archive", short_path / "beside.log", {}))
        return running[-1]

    yield begin
    for program in running:
        program.finish()


@pytest.fixture
def command(configuration: Callable[..., Path]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run an `mpswatch` command beside the daemon, with the same configuration."""

    def run(*arguments: str, configured: bool = True, **sections: Any) -> subprocess.CompletedProcess[str]:
        file = ["--config.file", str(configuration(**sections))] if configured else []
        return subprocess.run(
            [sys.executable, "-m", "mpswatch", *arguments, *file],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def until() -> Callable[..., Any]:
    """`wait_until`, for the tests: in this folder conftest cannot be imported."""
    return wait_until
