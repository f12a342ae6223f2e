"""Real Prometheus and Alertmanager around the daemon on a rehearsal stack, each a process of its own."""

from __future__ import annotations

import contextlib
import http.server
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from mpswatch.rehearsal import Stack

HERE = Path(__file__).parent
Json = dict[str, Any]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(what: Callable[[], Any], *, seconds: float, saying: str) -> Any:
    """The first true answer of `what`; an assertion that says what was awaited when it does not come in time."""
    until = time.monotonic() + seconds
    while True:
        if answer := what():
            return answer
        assert time.monotonic() < until, f"not within {seconds:g} s: {saying}"
        time.sleep(0.05)


@contextlib.contextmanager
def program(argv: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours, asked to leave at the end."""
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as reply:  # noqa: S310  # our own processes, on loopback
        return json.load(reply)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as reply:  # noqa: S310  # as above
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus; `url` is its address."""

    url: str
    process: subprocess.Popen[bytes]

    def _ask(self, path: str, **parameters: object) -> Any:
        answer = get(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str, **parameters: object) -> list[Json]:
        """The series of an instant query."""
        result: list[Json] = self._ask("query", query=expression, **parameters)["result"]
        return result

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Json]:
        result: list[Json] = self._ask("query_range", query=expression, start=start, end=end, step=step)["result"]
        return result

    def value(self, expression: str) -> float | None:
        """The value of an instant query with one series, None where there is none."""
        found = self.query(expression)
        return float(found[0]["value"][1]) if found else None

    def firing(self) -> set[str]:
        found = self.query('ALERTS{alertstate="firing"}')
        return {series["metric"]["alertname"] for series in found}

    def rules(self) -> list[Json]:
        groups: list[Json] = self._ask("rules")["groups"]
        return groups


@contextlib.contextmanager
def prometheus(directory: Path, configuration: Json) -> Iterator[Prometheus]:
    """Prometheus with this configuration, its data under `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    url = f"http://127.0.0.1:{free_port()}"
    argv = [
        "prometheus",
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}",
    ]
    with program(argv, directory / "prometheus.log") as process:
        wait_for(lambda: answers(f"{url}/-/ready"), seconds=20, saying=(directory / "prometheus.log").read_text())
        yield Prometheus(url, process)


@contextlib.contextmanager
def alertmanager(directory: Path, webhook: str) -> Iterator[str]:
    """Alertmanager that passes everything on to `webhook` at once; yields its HOST:PORT."""
    directory.mkdir(parents=True, exist_ok=True)
    configuration = {
        "route": {
            "receiver": "webhook",
            "group_by": ["alertname", "job", "instance"],
            "group_wait": "0s",
            "group_interval": "1s",
            "repeat_interval": "1h",
        },
        "receivers": [{"name": "webhook", "webhook_configs": [{"url": webhook, "send_resolved": True}]}],
    }
    (directory / "alertmanager.yml").write_text(yaml.safe_dump(configuration))
    address = f"127.0.0.1:{free_port()}"
    argv = [
        "prometheus-alertmanager",
        f"--config.file={directory / 'alertmanager.yml'}",
        f"--storage.path={directory / 'alertmanager'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
    ]
    with program(argv, directory / "alertmanager.log"):
        wait_for(lambda: answers(f"http://{address}/-/ready"), seconds=20, saying="Alertmanager is ready")
        yield address


@dataclass
class Webhook:
    """What Alertmanager sent: each alert with the moment (monotonic) it came."""

    url: str
    came: list[tuple[float, Json]] = field(default_factory=list)

    def alerts(self, name: str, status: str, job: str) -> list[tuple[float, Json]]:
        return [
            (at, alert)
            for at, alert in list(self.came)
            if alert["labels"]["alertname"] == name and alert["status"] == status and alert["labels"]["job"] == job
        ]


@contextlib.contextmanager
def webhook() -> Iterator[Webhook]:
    """A receiver for alerts, on loopback."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # http.server's name
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            receiver.came.extend((time.monotonic(), alert) for alert in body["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Webhook(f"http://127.0.0.1:{server.server_port}/")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def daemon(directory: Path, sweep_interval: str = "1m") -> Iterator[str]:
    """The daemon on its rehearsal stack in DIRECTORY/stack (rehearsed.py); yields its HOST:PORT."""
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    argv = [sys.executable, str(HERE / "rehearsed.py"), str(directory), str(port), sweep_interval]
    log = directory / "daemon.log"
    with program(argv, log) as process:

        def ready() -> bool:
            assert process.poll() is None, log.read_text()
            return answers(f"http://127.0.0.1:{port}/-/ready")

        wait_for(ready, seconds=40, saying=f"the daemon is ready; it said: {log}")
        yield f"127.0.0.1:{port}"


def scrapes(address: str) -> list[Json]:
    """One target, twice: without mpswatch_simulated (so that it counts as a fleet of its own), and as it is."""
    drop = {"source_labels": ["__name__"], "regex": "mpswatch_simulated", "action": "drop"}
    return [
        {
            "job_name": "mpswatch",
            "static_configs": [{"targets": [address], "labels": {"cluster": "test"}}],
            "metric_relabel_configs": [drop],
        },
        {
            "job_name": "mpswatch-rehearsal",
            "static_configs": [{"targets": [address], "labels": {"cluster": "rehearsal"}}],
        },
    ]


def sweep_thoroughly(stack: Path) -> None:
    """One thorough sweep from the command line, as an operator asks for it; the daemon finds it in its archive."""
    there, rounds = Stack(stack), {"rounds_least": 2, "rounds_most": 2}
    settings = {
        "host": "rehearsed",
        "daemons": [{"name": "rehearsal", "pipe_directory": str(there.pipe_directory)}],
        "mps": {"control_program": str(there.control_program)},
        "gpu": {"source": "nvidia-smi", "nvidia_smi": str(there.nvidia_smi)},
        "sweep": {
            "settle": 0,
            "fault_quiet": 0,
            "size": 96,
            "iters": 20,
            "thorough": {"passes": 2, "rest": "5ms", "settle_most": "60ms", "sustain": "60ms", **rounds},
        },
        "archive": {"directory": str(stack.parent / "archive")},
    }
    file = stack.parent / "thorough.yml"
    file.write_text(yaml.safe_dump(settings))
    argv = [sys.executable, "-m", "mpswatch", "sweep", "--plan", "thorough", "--config.file", str(file)]

    def swept() -> bool:
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0

    wait_for(swept, seconds=60, saying="a thorough sweep")


@dataclass(frozen=True)
class Live:
    """Everything running: ask Prometheus, read the webhook, tell the stack in `stack` what happens."""

    prometheus: Prometheus
    webhook: Webhook
    daemon: str
    stack: Path
    started: float


@contextlib.contextmanager
def live(directory: Path, rule_files: dict[str, Json], sweep_interval: str = "1m") -> Iterator[Live]:
    """The whole picture, with these rules."""
    rules = directory / "rules"
    rules.mkdir(parents=True)
    for name, content in rule_files.items():
        (rules / name).write_text(yaml.safe_dump(content))
    with contextlib.ExitStack() as running:
        receiver = running.enter_context(webhook())
        manager = running.enter_context(alertmanager(directory / "alertmanager", receiver.url))
        watched = running.enter_context(daemon(directory / "daemon", sweep_interval))
        configuration = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules / "*.yml")],
            "scrape_configs": scrapes(watched),
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [manager]}]}]},
        }
        started = time.time()
        server = running.enter_context(prometheus(directory / "prometheus", configuration))
        yield Live(server, receiver, watched, directory / "daemon" / "stack", started)
