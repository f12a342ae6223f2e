from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import shutil
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from mpswatch.documents import CapStanding, HistoryLook, PastRun, TenantIdentity
from mpswatch.evidence.quantities import quantities_of, readings
from mpswatch.latest import Latest, Settings
from mpswatch.metrics import Exposition
from mpswatch.web import FoundInterference, FoundRun, Protection, WebServer, application, bind


def _load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_browser = _load("page_browser", Path(__file__).with_name("browser.py"))


@pytest.fixture
def latest(facts):
    """As the daemon's, polled so often that the page asks again every two seconds. By its clock nothing grows old."""
    settings = Settings(daemons={facts.DAEMON: facts.PIPE}, poll_interval=2.0, sweep_interval=3600.0)
    return Latest(settings, host=facts.HOST, simulated=False, monotonic=lambda: 0.0)


class Quiet:
    """Takes log lines as structlog's loggers do, and keeps errors."""

    def __init__(self):
        self.errors = []

    def info(self, event, **fields):
        pass

    def error(self, event, **fields):
        self.errors.append((event, fields))


@pytest.fixture
def runs():
    """The runs that the archive holds, by their ids."""
    return {}


@pytest.fixture
def interferences():
    """The interference measurements that the archive holds, by their ids."""
    return {}


@pytest.fixture
def url(latest, runs, interferences):
    """A real server over `latest` and the archive's, in a thread with a loop of its own."""
    sockets = bind("127.0.0.1", 0)
    ready, log, started = threading.Event(), Quiet(), {}

    async def serve():
        protection = Protection(None)
        app = application(
            latest=latest,
            exposition=Exposition(latest),
            healthy=lambda: True,
            verdict=lambda: "sweeps will run",
            protection=protection,
            find_run=runs.get,
            find_interference=interferences.get,
        )
        server = started["server"] = WebServer(app, sockets, protection=protection, log=log)
        started["loop"] = asyncio.get_running_loop()
        task = asyncio.create_task(server.serve())
        while not server.started and not task.done():  # noqa: ASYNC110  # uvicorn has no event for it
            await asyncio.sleep(0.005)
        ready.set()
        await task

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(10)
    yield f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
    with contextlib.suppress(RuntimeError):
        started["loop"].call_soon_threadsafe(started["server"].stop)
    thread.join(10)
    assert log.errors == []


@pytest.fixture(scope="session")
def browser():
    with _browser.Browser() as running:
        yield running


@pytest.fixture
def violations(browser):
    """What axe-core finds wrong with the page that is open: every rule, each with where."""
    script = Path(shutil.which("axe.min.js")).read_text()

    def check():
        browser.run(f"{script};0")
        found = browser.run(
            "axe.run(document,{resultTypes:['violations']}).then(r=>JSON.stringify(r.violations.map("
            "v=>[v.id,v.nodes.map(n=>n.html.slice(0,200)+' '+n.failureSummary)])))"
        )
        return json.loads(found)

    return check


@pytest.fixture
def history(facts):
    """How a run stands: 50 % below its history, 25 % explained, 10 % too short to say, the others as usual."""

    def judged(cell, reading):
        who = {"cap": cell.cap, "quantity": reading.quantity}
        if reading.tflops is None:
            return CapStanding(**who, standing="unknown", unknown_reason=cell.unknown_reason)
        if cell.cap == "10":
            return CapStanding(**who, standing="unknown", unknown_reason="history_short", runs=3)
        usual = reading.tflops * (1.2 if cell.cap in ("50", "25") else 1.0)
        return CapStanding(
            **who,
            standing={"50": "below", "25": "explained"}.get(cell.cap, "usual"),
            tflops=reading.tflops,
            median=usual,
            low=usual * 0.95,
            high=usual * 1.05,
            runs=30,
            explained_by=("foreign: train.py",) if cell.cap == "25" else (),
        )

    def past(document, quantity, hour):
        if quantity not in (*quantities_of(document), "tflops"):
            return {}
        found = {cell.cap: readings(cell, (quantity,))[0].tflops or 80.0 for cell in document.cells}
        return {cap: tflops * (1 + 0.01 * (hour % 5 - 2)) for cap, tflops in found.items()}

    def look(document, *, simulated=False):
        return HistoryLook(
            host=document.host, daemon=facts.DAEMON, gpu_uuid=facts.GPU, plan=document.protocol.plan,
            run_id=document.run_id, judged_at=facts.NOON, simulated=simulated,
            caps=tuple(
                judged(cell, reading)
                for cell in document.cells for reading in readings(cell, quantities_of(document))
            ),
            previous=tuple(
                PastRun(
                    run_id=f"earlier-{hour}", at=facts.NOON - timedelta(hours=30 - hour),
                    **{quantity: past(document, quantity, hour) for quantity in ("tflops", "burst", "sustained")},
                )
                for hour in range(30)
            ),
        )  # fmt: skip

    return look


def crowded(facts):
    """The tenants, as long as they come: with where they run, since when, and a name that has no place to break."""
    who = TenantIdentity(
        user="someone", unit="inference-gateway@production.service", container_id="0123456789ab" * 5,
        container_name="chat-completions-server", container_runtime="containerd", pod_uid="1f0c",
        pod_name="chat-completions-7c9d8b6f5d-x2x4z", pod_namespace="inference-production", slurm_job="4711",
    )  # fmt: skip
    name = "/opt/models/venv/lib/python3.11/site-packages/vllm/entrypoints/openai/api_server.py"
    return tuple(
        replace(
            tenant, first_seen_at=facts.NOON - timedelta(days=3), identity=who,
            process_name=name if tenant.pid in (201, 401) else tenant.process_name,
        )
        for tenant in facts.TENANTS
    )  # fmt: skip


@pytest.fixture
def shown(latest, facts, history, runs, interferences):
    """A whole stack on the page: tenants, a partial run and a thorough one with their histories, a refusal, events,
    and a matrix one of whose pairs failed."""
    document, thorough = facts.sweep(failed={"75": "deadline"}, run_id="run-1"), facts.thorough(run_id="run-2")
    pairs = facts.interference(failed={("75", "100"): "deadline"})
    event = facts.event("sweep_started", run_id="run-1", message="sweep run-1 starts under server 100")
    latest.expect([(facts.DAEMON, facts.GPU, "quick"), (facts.DAEMON, facts.GPU, "thorough")])
    latest.record(facts.poll(tenants=facts.known(crowded(facts))))
    latest.record(event)
    for run in (document, thorough):
        latest.record(run)
        latest.record(history(run))
        runs[run.run_id] = FoundRun(run, (event,))
    latest.record(pairs)
    interferences[pairs.run_id] = FoundInterference(pairs, (event,))
    latest.record(facts.refusal(at=facts.NOON + timedelta(hours=1), plan="thorough", message="server of uid 1000"))
    return document
