"""What `make bench` measures. Each item returns figures (printed), and ratios (compared with the baseline)."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import http.client
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crowd import Crowd, crowd
from measuring import by_turns, cpu_of_children, line, middle, own_cpu, ratio, resident

from mpswatch.archive import Archive
from mpswatch.documents import SweepDocument, from_json, to_json
from mpswatch.identity import known
from mpswatch.latest import Latest, Settings
from mpswatch.metrics import Exposition, Options, build
from mpswatch.metrics.text import render
from mpswatch.mps import commands
from mpswatch.rehearsal.stack import Stack

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RECORDED = ROOT / "tests" / "recordings" / "h200-580"

NVITOP_SCRAPE_MS = 11.3
NVITOP_COLLECTION_MS = 23.0
"""nvitop-exporter 1.7.2 with 46 processes on the H200's host: figures of another machine, for the order of size."""

Found = tuple[dict[str, Any], dict[str, dict[str, float]]]


def _module(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


facts = _module("bench_facts", ROOT / "tests" / "latest" / "facts.py")


# --- poll


def floor(stack: Crowd) -> None:
    """The same questions asked bare: one connection, one read of /proc a process."""
    subprocess.run([str(stack.program)], input=commands.script(stack.pids[:1], with_contexts=True),
                   capture_output=True, env=dict(os.environ), check=True)  # fmt: skip
    for pid in stack.pids:
        Path(f"/proc/{pid}/stat").read_bytes()


def poll(rounds: int, most: int) -> Found:
    """Own CPU of a poll, and how it grows. Processes count as older than a minute, as nearly all are."""
    young, known.YOUNG = known.YOUNG, 0.0
    figures: dict[str, Any] = {}
    ratios = {}
    growth: dict[int, float] = {}
    try:
        for number in (1, 10, 46, 200, 1000):
            if number > most:
                continue
            with tempfile.TemporaryDirectory() as directory, crowd(number, Path(directory) / "pipe") as stack:
                watch = stack.poller()
                snapshot = [watch.look() for _ in range(3)][-1]
                assert len(snapshot.tenants.value or ()) == number + 1, snapshot.sources
                children = cpu_of_children()
                took = by_turns({"poll": watch.look, "floor": lambda stack=stack: floor(stack)}, rounds)
                children = 1e3 * (cpu_of_children() - children) / (2 * rounds)
            figures[f"{number} processes"] = {
                "poll_ms": middle(took["poll"]), "floor_ms": middle(took["floor"]), "programs_ms": round(children, 2),
            }  # fmt: skip
            ratios[f"poll / floor, {number} processes"] = ratio(took["poll"], took["floor"])
            growth[number] = middle(took["poll"])["median"]
    finally:
        known.YOUNG = young
    base, slope = line(growth)
    figures["growth"] = {"ms": round(base, 3), "microseconds_a_process": round(1e3 * slope, 1)}
    return figures, ratios


# --- scrape


def many_tenants(number: int) -> Any:
    """A poll with `number` tenants beside the server: seven of eight managed, each foreign one with its own name."""
    tenants = [facts.tenant(100, "server", 66 * facts.MIB, process_name="nvidia-cuda-mps-server")]
    for pid in range(1000, 1000 + number):
        foreign = pid % 8 == 0
        name = f"/opt/program-{pid}" if foreign else "/usr/bin/python3"
        tenants.append(facts.tenant(pid, "foreign" if foreign else "managed", process_name=name))
    return facts.poll(tenants=facts.known(tuple(tenants)))


def latest_of(number: int) -> Latest:
    settings = Settings(daemons={facts.DAEMON: facts.PIPE}, poll_interval=15.0, sweep_interval=3600.0)
    latest = Latest(settings, host=facts.HOST, simulated=False)
    latest.record(many_tenants(number))
    document = from_json(next(iter(sorted(RECORDED.glob("h200_*.json")))).read_bytes(), SweepDocument)
    latest.record(document)
    return latest


def client_library(families: Any) -> Callable[[], bytes]:
    """prometheus_client's own way with the same series: Gauge objects, and its own renderer."""
    import prometheus_client

    registry = prometheus_client.CollectorRegistry()
    for family in families:
        gauge = prometheus_client.Gauge(
            f"c_{family.spec.name}", family.spec.help, family.spec.labels, registry=registry
        )
        for labels, value in family.samples.items():
            (gauge.labels(*labels) if labels else gauge).set(value)
    return lambda: prometheus_client.generate_latest(registry)


def scrape(rounds: int) -> Found:
    """A whole new snapshot built and rendered, one handed out again, and prometheus_client's renderer alone."""
    figures: dict[str, Any] = {}
    ratios = {}
    for number, labels in ((10, False), (46, False), (100, False), (1000, False), (1000, True)):
        name = f"{number} tenants" + (", pid labels" if labels else "")
        latest, options = latest_of(number), Options(pid_labels=labels)
        exposition = Exposition(latest, options)
        view = latest.view()
        text = exposition.render("text")
        series = sum(1 for row in text.splitlines() if row and not row.startswith(b"#"))
        families = build(view, options)[0]
        took = by_turns(
            {
                "new": lambda view=view, options=options: render(build(view, options)[0], "text"),
                "again": lambda exposition=exposition: exposition.render("text"),
                "library": client_library(families),
            },
            rounds,
            each=3,
        )
        figures[name] = {
            "series": series, "bytes": len(text), "gzipped": len(gzip.compress(text)),
            "build_and_render_ms": middle(took["new"]), "handed_out_again_ms": middle(took["again"]),
            "prometheus_client_ms": middle(took["library"]),
        }  # fmt: skip
        ratios[f"render / prometheus_client, {name}"] = ratio(took["new"], took["library"])
        ratios[f"scrape again / prometheus_client, {name}"] = ratio(took["again"], took["library"])
    return figures, ratios


SCRAPER = """
import http.client, json, sys, time
connection, walls = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1])), []
for _ in range(int(sys.argv[2])):
    began = time.monotonic()
    connection.request("GET", "/metrics")
    connection.getresponse().read()
    walls.append(1e3 * (time.monotonic() - began))
    time.sleep(0.005)
print(json.dumps(walls))
"""


def scrape_by_http(scrapes: int) -> Found:
    """Over a loopback connection that is kept, while a poll of 1,000 tenants is recorded twice a second."""
    from mpswatch.web import Protection, WebServer, application, bind

    figures: dict[str, Any] = {}
    for number in (46, 1000):
        latest, polled = latest_of(number), many_tenants(number)
        sockets = bind("127.0.0.1", 0)
        port = sockets[0].getsockname()[1]
        started = threading.Event()
        stopped: list[Callable[[], None]] = []

        async def serve(latest: Latest = latest, sockets: Any = sockets, polled: Any = polled,
                        started: threading.Event = started, stopped: Any = stopped) -> None:  # fmt: skip
            protection = Protection(None)
            app = application(latest=latest, exposition=Exposition(latest), healthy=lambda: True,
                              verdict=lambda: "", protection=protection)  # fmt: skip
            server = WebServer(app, sockets, protection=protection, log=None)
            loop = asyncio.get_running_loop()
            stopped.append(lambda: loop.call_soon_threadsafe(server.stop))
            serving = asyncio.create_task(server.serve())
            while not server.started:  # noqa: ASYNC110 -- uvicorn has no event for it
                await asyncio.sleep(0.005)
            started.set()
            while not serving.done():
                latest.record(polled)
                await asyncio.wait({serving}, timeout=0.5)

        thread = threading.Thread(target=lambda serve=serve: asyncio.run(serve()))
        thread.start()
        started.wait(10)
        busy = own_cpu()
        said = subprocess.run(
            [sys.executable, "-c", SCRAPER, str(port), str(scrapes)], capture_output=True, text=True, check=True
        ).stdout
        busy = 1e3 * (own_cpu() - busy) / scrapes
        walls = json.loads(said)
        stopped[0]()
        thread.join()
        walls.sort()
        figures[f"{number} tenants"] = {
            "ms": middle(walls), "p99_ms": round(walls[int(len(walls) * 0.99)], 3),
            "cpu_ms_each_with_new_snapshots": round(busy, 3), "scrapes": scrapes,
        }  # fmt: skip
    return figures, {}


# --- start and memory


HEAVY = (
    "torch",
    "numpy",
    "rich",
    "httpx",
    "mpswatch.rehearsal",
    "mpswatch.client",
    "pydantic",
    "cryptography",
    "unittest",
)


def compiled() -> dict[str, str]:
    """An environment in which modules are compiled once, as an installer does it, whatever this one says."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / "mpswatch-bench-compiled")}


def start(rounds: int, *, instructions: bool) -> Found:
    """Importing what `mpswatch run` needs, beside a bare interpreter and what nothing here can do without."""
    works = {"daemon": "import mpswatch.cli.run_command, mpswatch.daemon.run", "bare": "pass",
             "asyncio and ssl": "import asyncio, ssl, logging, hashlib, json"}  # fmt: skip
    took: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        for name, code in works.items():
            before = cpu_of_children()
            subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env=compiled())
            took[name].append(cpu_of_children() - before)
    took = {name: rows[1:] for name, rows in took.items()}  # the first one may have compiled
    said = subprocess.run(
        [sys.executable, "-c", works["daemon"] + "; import sys; print(*sys.modules)"], capture_output=True, text=True,
        check=True, cwd=ROOT,
    ).stdout.split()  # fmt: skip
    figures: dict[str, Any] = {
        "cpu_seconds": {name: {"least": round(min(rows), 3), **middle(rows)} for name, rows in took.items()},
        "import_seconds_least": round(min(took["daemon"]) - min(took["bare"]), 3),
        "modules": len(said),
        "heavy": [name for name in HEAVY if name in said],
    }
    ratios = {"import of the daemon / asyncio and ssl": ratio(took["daemon"], took["asyncio and ssl"])}
    if instructions and shutil.which("valgrind"):
        counted = {name: count_instructions(works[name]) for name in ("bare", "daemon")}
        figures["instructions"] = counted
        exact = round(counted["daemon"] / counted["bare"], 3)
        ratios["instructions, daemon / bare"] = {"median": exact, "low": exact * 0.99, "high": exact * 1.01}
    return figures, ratios


def count_instructions(code: str) -> int:
    """By callgrind: the same on a busy machine, to about a hundredth."""
    said = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable, "-c", code],
        capture_output=True, text=True, check=True, cwd=ROOT, env=compiled() | {"PYTHONHASHSEED": "0"},
    ).stderr  # fmt: skip
    found = re.search(r"Collected : (\d+)", said)
    assert found is not None, said[-500:]
    return int(found[1])


@contextlib.contextmanager
def rehearsed(directory: Path, *, interval: str = "1s", services: int = 5) -> Any:
    """A rehearsal stack with a daemon on it: (stack, daemon, port)."""
    import socket

    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    with Stack(directory / "stack") as stack:
        for number in range(services):
            stack.add_service(f"service-{number}", busy=False)
        stack.add_foreign("notebook", 658)
        settings = {
            "daemons": [{"name": "bench", "pipe_directory": str(stack.pipe_directory),
                         "log_directory": str(stack.log_directory)}],
            "poll": {"interval": interval},
            "mps": {"control_program": str(stack.control_program), "deadline": "2500ms"},
            "gpu": {"source": "nvidia-smi", "nvidia_smi": str(stack.nvidia_smi), "deadline": "2500ms"},
            "sweep": {"interval": "1h", "jitter": 0, "settle": 0, "size": 64, "iters": 40},
            "archive": {"directory": str(directory / "archive")},
            "web": {"listen_address": f"127.0.0.1:{port}"},
        }  # fmt: skip
        configuration = directory / "mpswatch.yml"
        configuration.write_text(json.dumps(settings))
        with (directory / "daemon.log").open("wb") as log:
            daemon = subprocess.Popen(
                [sys.executable, str(ROOT / "tests" / "end_to_end" / "rehearse.py"), str(configuration)],
                stdout=log, stderr=log, cwd=ROOT, env=compiled(),
            )  # fmt: skip
        try:
            until(lambda: get(port, "/-/ready")[0] == 200 or daemon.poll() is not None, 60)
            assert daemon.poll() is None, (directory / "daemon.log").read_text()[-1500:]
            yield stack, daemon, port
        finally:
            daemon.terminate()
            daemon.wait(30)


def get(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def until(what: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if what():
                return
        time.sleep(0.1)
    raise TimeoutError(what)


def memory() -> Found:
    """Resident size of the daemon on a rehearsal, without the driver's library."""
    with tempfile.TemporaryDirectory() as scratch, rehearsed(Path(scratch)) as (_, daemon, port):
        time.sleep(2)
        figures: dict[str, Any] = {"after start": resident(daemon.pid)}
        until(lambda: b"mpswatch_sweeps_total{" in (text := get(port, "/metrics")[1]) and any(
            float(row.split()[-1]) for row in text.splitlines() if row.startswith(b"mpswatch_sweeps_total{")
        ), 60)  # fmt: skip
        for path in ("/", "/metrics", "/api/v1/latest"):
            get(port, path)
        time.sleep(2)
        figures["after a sweep"] = resident(daemon.pid)
        figures["threads"] = len(os.listdir(f"/proc/{daemon.pid}/task"))  # noqa: PTH208 -- a count
    size = figures["after a sweep"]["rss_mib"]
    return figures, {"resident MiB after a sweep": {"median": size, "low": size - 1, "high": size + 1}}


# --- archive


def archive(most: int) -> Found:
    """A recorded run written, and archives of many runs listed and read."""
    document = from_json(next(iter(sorted(RECORDED.glob("h200_*.json")))).read_bytes(), SweepDocument)
    figures: dict[str, Any] = {}
    ratios = {}
    with tempfile.TemporaryDirectory() as scratch:
        sizes = {}
        for compressed in (False, True):
            kept = Archive(Path(scratch) / f"gzip-{compressed}", gzip=compressed)
            kept.prepare()
            sizes["gzipped" if compressed else "plain"] = kept.write(document).stat().st_size
        took = by_turns(
            {"write": lambda: kept.write(document), "encode": lambda: to_json(document, indent=2)}, rounds=20, each=2
        )
        figures["write_ms"] = middle(took["write"])
        figures["bytes"] = sizes
        figures["a year at one an hour, MiB"] = {name: round(size * 8766 / 2**20, 1) for name, size in sizes.items()}
        whole = to_json(document, indent=2)
        for number in (1, 1000, 100_000):
            if number > most:
                continue
            many = Archive(Path(scratch) / f"many-{number}")
            many.prepare()
            fill(many, document, whole, number)
            began = time.monotonic()
            newest = next(iter(many.entries()))
            listed = time.monotonic() - began
            count = sum(1 for _ in many.entries())
            assert count == number, count
            began = time.monotonic()
            many.read(newest.path)
            read = time.monotonic() - began
            began = time.monotonic()
            many.latest()
            figures[f"{number} runs"] = {
                "newest_listed_ms": round(1e3 * listed, 2), "one_read_ms": round(1e3 * read, 2),
                "latest_ms": round(1e3 * (time.monotonic() - began), 2),
            }  # fmt: skip
            shutil.rmtree(many.directory)
    ratios["write of a run / its encoding"] = ratio(took["write"], took["encode"])
    return figures, ratios


def fill(kept: Archive, document: SweepDocument, whole: bytes, number: int) -> None:
    """`number` runs a minute apart: hard links to few files, named as the archive names them."""
    name = kept.write(document).name
    stamps = re.findall(r"\d{8}T\d{6}Z", name)
    source = kept.runs / name
    begin = 1_600_000_000
    for index in range(number - 1):
        if index % 30_000 == 0:
            source = kept.runs / f".bench-{index}"
            source.write_bytes(whole)
        other = name
        for stamp in set(stamps):
            other = other.replace(stamp, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(begin + 60 * index)))
        os.link(source, kept.runs / other)


# --- control.log


def control_log() -> Found:
    """Bytes that polls and a sweep add to the control daemon's log, which nobody rotates; counted on the rehearsal."""
    figures: dict[str, Any] = {}
    for services in (2, 40):
        with tempfile.TemporaryDirectory() as scratch, Stack(Path(scratch) / "stack") as stack:
            for number in range(services):
                stack.add_service(f"service-{number}", busy=False)
            log = stack.log_directory / "control.log"
            from mpswatch import mps
            from mpswatch.proc import Processes

            def look(known: tuple[int, ...], contexts: bool, stack: Stack = stack) -> tuple[int, ...]:
                said, _ = mps.look(name="bench", pipe_directory=stack.pipe_directory, known_servers=known,
                                   program=str(stack.control_program), deadline=10, processes=Processes(),
                                   with_contexts=contexts)  # fmt: skip
                return tuple(server.pid for server in said.servers.value or ())

            server = look((), True)
            added = {}
            for name, contexts in (("a poll", True), ("a sweep's own look", False)):
                before = log.stat().st_size
                for _ in range(5):
                    look(server, contexts)
                added[name] = (log.stat().st_size - before) // 5
            least = least_bytes(services)
            looks_a_sweep = 5 * 4
            day = 5760 * added["a poll"] + 24 * looks_a_sweep * added["a sweep's own look"]
            figures[f"{services} clients"] = {
                **added,
                "MiB a day (15 s polls, hourly sweeps)": round(day / 2**20, 2),
                "of it sweeps": round(24 * looks_a_sweep * added["a sweep's own look"] / 2**20, 2),
                "MiB a day without ps": round((5760 + 24 * looks_a_sweep) * added["a sweep's own look"] / 2**20, 2),
                "least, MiB a day": round(5760 * least / 2**20, 2),
            }
    return figures, {}


def least_bytes(clients: int) -> int:
    """One connection with the one question without which nobody is known to be managed: the client list."""
    stamp = len("[2026-11-30 16:22:33.959 Control   448] ")
    lines = ["Accepting connection...", "NEW UI", "Cmd:get_client_list 12345", *["12345"] * clients, "UI closed"]
    return sum(stamp + len(row) + 1 for row in lines)
