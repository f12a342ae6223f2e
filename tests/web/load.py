"""A crowd before a daemon: how long scrapes take, and whether anything else suffers.

    python tests/web/load.py [--seconds 60] [--rate 200] [--tenants 1000] [--plain] [--json FILE]

A rehearsal with that many foreign tenants, and a real daemon with TLS that polls every 5 s. While `hey` (a real
load generator) scrapes it at a steady rate, 500 connections sit idle, 50 handshakes are stalled, and 20 clients read
one byte a second, all at that one daemon. Said at the end: the scrapes' latencies and failures, the daemon's memory
before, while and after, its CPU, and how far apart its polls were. `--plain`: without TLS; then the stalled handshakes
are headers that never end.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import resource
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import trustme

from mpswatch.daemon import memory
from mpswatch.rehearsal.stack import Stack

REHEARSE = Path(__file__).parents[1] / "end_to_end" / "rehearse.py"
POLL = 5.0
IDLE, STALLED, SLOW = 500, 50, 20


def settings(stack: Stack, folder: Path, name: str, web: dict[str, object]) -> Path:
    """The configuration file of one daemon (JSON is YAML)."""
    path = folder / f"{name}.yml"
    content = {
        "daemons": [{"name": "stack", "pipe_directory": str(stack.pipe_directory)}],
        "mps": {"control_program": str(stack.control_program)},
        "gpu": {"source": "nvidia-smi", "nvidia_smi": str(stack.nvidia_smi), "deadline": 10},
        "poll": {"interval": POLL},
        "sweep": {"enabled": False},
        "archive": {"directory": str(folder / f"archive-{name}")},
        "web": {"listen_address": "127.0.0.1:0", **web},
        "log": {"level": "info", "format": "json"},
    }
    path.write_text(json.dumps(content))
    return path


class Daemon:
    """One daemon as a process."""

    def __init__(self, path: Path) -> None:
        self.log = path.with_suffix(".log")
        with self.log.open("wb") as out:
            self.program = subprocess.Popen([sys.executable, str(REHEARSE), str(path)], stdout=out, stderr=out)
        self.port = int(self._wait_for("serving")["addresses"][0].rsplit(":", 1)[1])

    def _wait_for(self, event: str) -> dict[str, list[str]]:
        for _ in range(600):
            for line in self.log.read_text().splitlines():
                with contextlib.suppress(ValueError):
                    if (found := json.loads(line)).get("event") == event:
                        return found
            time.sleep(0.1)
        raise SystemExit(self.log.read_text())

    def resident(self) -> int:
        """Bytes."""
        return int(Path(f"/proc/{self.program.pid}/statm").read_text().split()[1]) * resource.getpagesize()

    def cpu(self) -> float:
        """Seconds of CPU so far, children that it waited for included."""
        fields = Path(f"/proc/{self.program.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return sum(int(fields[index]) for index in (11, 12, 13, 14)) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> int:
        self.program.terminate()
        return self.program.wait(60)


TRUSTING = ssl.create_default_context()
TRUSTING.check_hostname, TRUSTING.verify_mode = False, ssl.CERT_NONE


def scrape(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20, context=TRUSTING) as reply:  # noqa: S310 -- our own daemon's address
        return reply.read().decode()


def value(text: str, name: str) -> float | None:
    found = re.search(rf"^{re.escape(name)}(?:{{[^\n]*}})? (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else None


class Crowd:
    """Those who only sit there: connections that say nothing, or read one byte a second."""

    def __init__(self, port: int, *, tls: bool) -> None:
        self._port, self._tls = port, tls
        self._sockets: list[socket.socket] = []
        self._slow: list[socket.socket] = []
        self._stalled: list[socket.socket] = []
        self.ended = threading.Event()
        self.opened_anew = 0
        self._thread = threading.Thread(target=self._sit, daemon=True)

    def __enter__(self) -> Crowd:
        self._sockets = [self._idle() for _ in range(IDLE)]
        self._stalled = [self._hello() for _ in range(STALLED)]
        self._slow = [self._reader() for _ in range(SLOW)]
        self._thread.start()
        return self

    def _idle(self) -> socket.socket:
        """Asks once, so that it is a connection kept alive, and then says nothing."""
        idle = self._wrapped(socket.create_connection(("127.0.0.1", self._port), timeout=20))
        idle.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
        idle.recv(4096)
        return idle

    def _hello(self) -> socket.socket:
        """Begins a handshake (without TLS: a request) and never goes on."""
        stalled = socket.create_connection(("127.0.0.1", self._port), timeout=20)
        stalled.sendall(bytes.fromhex("16030100c8010000c40303") if self._tls else b"GET /metrics HTTP/1.1\r\n")
        return stalled

    def _wrapped(self, raw: socket.socket) -> socket.socket:
        return TRUSTING.wrap_socket(raw) if self._tls else raw

    def _reader(self) -> socket.socket:
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        slow.settimeout(20)
        slow.connect(("127.0.0.1", self._port))
        slow = self._wrapped(slow)
        slow.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        return slow

    def _sit(self) -> None:
        """One byte a second for each reader; whoever was shown the door comes again."""
        while not self.ended.wait(1.0):
            self._slow = [self._again(slow, self._reader, read=True) for slow in self._slow]
            self._stalled = [self._again(stalled, self._hello) for stalled in self._stalled]
            self._sockets = [self._again(idle, self._idle) for idle in self._sockets]

    def _again(self, one: socket.socket, anew, *, read: bool = False) -> socket.socket:
        try:
            if read:
                gone = one.recv(1) == b""
            else:
                one.setblocking(False)
                gone = one.recv(1) == b""  # nobody has anything more to say to them
        except (BlockingIOError, ssl.SSLWantReadError):
            return one
        except OSError:
            gone = True
        if not gone:
            return one
        one.close()
        self.opened_anew += 1
        try:
            return anew()
        except OSError:
            return socket.socket()

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._thread.join(30)
        for one in (*self._sockets, *self._stalled, *self._slow):
            one.close()


def hey(url: str, *, rate: int, seconds: int) -> dict[str, object]:
    """8 workers that scrape `rate` times a second in all; every reply's seconds and status."""
    workers = 8
    command = ["hey", "-z", f"{seconds}s", "-c", str(workers), "-q", str(rate / workers), "-o", "csv"]
    done = subprocess.run([*command, url], capture_output=True, text=True, check=True)
    rows = [line.split(",") for line in done.stdout.splitlines()[1:] if line]
    times = sorted(float(row[0]) for row in rows)
    good = sum(row[6] == "200" for row in rows)

    def at(share: float) -> float:
        return round(times[min(len(times) - 1, int(share * len(times)))] * 1000, 2)

    return {
        "scrapes": len(rows),
        "a_second": round(len(rows) / seconds, 1),
        "failed": len(rows) - good,
        "p50_ms": at(0.5),
        "p90_ms": at(0.9),
        "p99_ms": at(0.99),
        "p999_ms": at(0.999),
        "longest_ms": round(times[-1] * 1000, 2),
    }


def measure(arguments: argparse.Namespace) -> dict[str, object]:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    folder = Path(tempfile.mkdtemp(prefix="mpsw-"))
    folder.chmod(0o755)
    result: dict[str, object] = {
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "cores": os.cpu_count(),
        "load_average_before": os.getloadavg()[0],
        "tenants": arguments.tenants,
        "rate": arguments.rate,
        "seconds": arguments.seconds,
        "idle": IDLE,
        "stalled_handshakes": STALLED,
        "slow_readers": SLOW,
        "tls": not arguments.plain,
    }
    with contextlib.ExitStack() as stack_of:
        stack_of.callback(shutil.rmtree, folder, ignore_errors=True)
        stack = stack_of.enter_context(Stack(folder / "stack"))
        for number in range(arguments.tenants // 50):
            stack.tell("foreign", name=f"training-{number}", memory_mib=10 + number, count=50)
        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1")
        (folder / "tls.pem").write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        certificate.private_key_pem.write_to_path(folder / "tls.key")
        (folder / "web.yml").write_text("tls_server_config: {cert_file: tls.pem, key_file: tls.key}\n")
        tls = not arguments.plain
        daemon = Daemon(settings(stack, folder, "load", {"config_file": str(folder / "web.yml")} if tls else {}))
        stack_of.callback(daemon.stop)
        url = f"http{'s' if tls else ''}://127.0.0.1:{daemon.port}/metrics"
        while value(scrape(url), "mpswatch_foreign_tenants") != arguments.tenants:
            time.sleep(1.0)
        time.sleep(2 * POLL)
        result["quiet"] = hey(url, rate=20, seconds=5)
        result["resident_before_mib"] = daemon.resident() >> 20
        stamps: set[float] = set()
        highest = 0
        watching = threading.Event()

        def watch() -> None:
            nonlocal highest
            while not watching.wait(0.5):
                highest = max(highest, daemon.resident())
                with contextlib.suppress(OSError, TypeError):
                    stamps.add(value(scrape(url), "mpswatch_poll_last_success_timestamp_seconds") or 0.0)

        watcher = threading.Thread(target=watch)
        with Crowd(daemon.port, tls=tls) as crowd:
            cpu, began = daemon.cpu(), time.monotonic()
            watcher.start()
            result["under_load"] = hey(url, rate=arguments.rate, seconds=arguments.seconds)
            result["daemon_cpu_share"] = round((daemon.cpu() - cpu) / (time.monotonic() - began), 3)
            watching.set()
            watcher.join()
        result["came_again"] = crowd.opened_anew
        result["load_average_after"] = os.getloadavg()[0]
        result["resident_most_mib"] = highest >> 20
        time.sleep(2 * POLL)
        result["resident_soon_after_mib"] = daemon.resident() >> 20
        time.sleep(memory.GIVE_BACK_SECONDS)
        result["resident_after_mib"] = daemon.resident() >> 20
        seen = sorted(stamps)
        gaps = [later - earlier for earlier, later in itertools.pairwise(seen)]
        result["polls"] = {"interval": POLL, "seen": len(seen), "longest_gap_seconds": round(max(gaps, default=0), 2)}
        result["series"] = sum(not line.startswith("#") for line in scrape(url).splitlines())
        result["exposition_bytes"] = len(scrape(url))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--tenants", type=int, default=1000)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    text = json.dumps(measure(arguments), indent=2)
    print(text)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
