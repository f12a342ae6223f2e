"""Two GPUs of one host: who is on which, and sweeps that go through them one at a time. About 90 seconds, as root.

usage: two_gpus.py OUTPUT_DIRECTORY [--rehearsal] [--only NAME…]

One control daemon for both GPUs with a service on each, a client on both and a stranger on the second; others that are
limited to one GPU or given them the other way round, by UUID and by index. Which GPU a client is really on is told by
the driver, in that client's own process and in nvidia-smi, never by mpswatch. Writes `two-gpus.json` (each check and
whether it held), `documents.json` (polls, sweeps, a scrape, journal), `replies.txt` (what control daemons answer) and
`nvidia-smi.xml`, as it goes. Exits 1 when a check did not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from identity import Run
from main_job import Services, values
from private_mps import ROOT, Clients, Mps, Watching, configure, lacks, until
from stacks import gone

from mpswatch.config import load
from mpswatch.daemon.once import sweep_once
from mpswatch.daemon.parts import Parts, make_parts
from mpswatch.daemon.targets import targets
from mpswatch.documents import PollSnapshot, to_json
from mpswatch.rehearsal import gpus
from mpswatch.rehearsal.stack import Stack
from mpswatch.sweep.progress import CellMeasuring
from mpswatch.sweep.stop import Stop

CAPS = (100, 75, 50, 25, 10)
SMS = {"100": 132, "75": 98, "50": 66, "25": 32, "10": 12}
Row = tuple[str, str, str | None]
"""GPU, kind, daemon."""


class RehearsedBeside(Mps):
    """One more daemon of the one rehearsal that has both GPUs."""

    rehearsal = True

    def __init__(self, work: Path, name: str, stack: Stack, devices: str | None) -> None:
        self.work, self.name, self.stack = work, name, stack
        numbers = {gpus.uuid(0): 0, gpus.uuid(1): 1, "0": 0, "1": 1}
        self.pipe = stack.add_daemon(name, devices=[numbers[word] for word in (devices or "0,1").split(",")])
        self.log = stack.log_directory_of(name)
        self.control_program, self.nvidia_smi = str(stack.control_program), str(stack.nvidia_smi)
        self.environment = os.environ | {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipe)}

    def __exit__(self, *_: object) -> None:
        self.stack.tell("die", daemon=self.name)


class TwoGpus(Run):
    """What was found on the two, written down with each check."""

    def __init__(self, output: Path, work: Path, *, rehearsal: bool) -> None:
        super().__init__(output, work, rehearsal=rehearsal)
        self.said: list[str] = []
        self.stack = Stack(work / "s", gpus=2).start() if rehearsal else None
        self.documents: dict[str, Any] = {"polls": {}, "sweeps": {}}
        self.replies: list[str] = []
        self.tflops: dict[str, Any] = {}
        self.figures["tflops"] = self.tflops
        self.running: list[Mps] = []
        self.nvidia_smi = str(self.stack.nvidia_smi) if self.stack else "nvidia-smi"
        said = ask([self.nvidia_smi, "-L"])
        self.uuids = [word.strip("()\n ") for line in said.splitlines() for word in line.split() if "GPU-" in word]
        self.say(f"the driver's order: {self.uuids}")
        self.check(len(self.uuids) == 2, f"there are two GPUs: {said.strip()}")

    def mps(self, name: str, *_flags: str, devices: str | None = None) -> Mps:
        if self.stack is not None:
            mps: Mps = RehearsedBeside(self.work, name, self.stack, devices)
        else:
            mps = Mps(self.work, name, devices=devices)
        self.running.append(mps)
        return mps

    def say(self, text: str) -> None:
        super().say(text)
        self.said.append(f"{time.monotonic() - self.began:.2f} {text}")

    def check(self, holds: object, text: str) -> None:
        super().check(holds, text)
        self.save()

    def save(self) -> None:
        failed = [check["what"] for check in self.checks if not check["holds"]]
        summary = {
            "seconds": round(time.monotonic() - self.began, 1),
            "python": sys.version.split()[0],
            "kernel": os.uname().release,
            "uuids": getattr(self, "uuids", []),
            "held": len(self.checks) - len(failed),
            "failed": failed,
            "said": self.said,
            "figures": self.figures,
        }
        self.write("two-gpus.json", json.dumps(summary, indent=1, default=str))

    def keep(self, kind: str, name: str, document: object) -> None:
        self.documents.setdefault(kind, {})[name] = document
        self.write("documents.json", json.dumps(self.documents, indent=1))

    def configured(self, daemons: Sequence[Mps], *, auto: bool = False, **sweep: Any) -> Path:
        """A configuration; `auto`: the daemons are to be found (a rehearsal's never are)."""
        path = configure(self.work, daemons, **{"caps": list(CAPS), "interval": "10m", **sweep})
        settings = json.loads(path.read_text())
        settings["poll"] = {"interval": "2s"}
        if auto and not self.rehearsal:
            settings["daemons"] = "auto"
        path.write_text(json.dumps(settings))
        return path

    def parts(self, daemons: Sequence[Mps], **sweep: Any) -> Parts:
        return make_parts(load(self.configured(daemons, **sweep)), simulated=self.rehearsal)

    def command(self, *words: str, seconds: float) -> tuple[int, Any]:
        """One of mpswatch's commands: exit status and the document that it printed."""
        argv = [sys.executable, "-m", "mpswatch", *words]
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        try:
            answer = subprocess.run(
                argv, env=os.environ | {"PYTHONPATH": path}, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True,
                timeout=seconds, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            self.check(False, f"mpswatch {words[0]} came within {seconds:g} s: {(late.stderr or b'')[-600:]!r}")
            return -1, None
        for line in answer.stderr.decode(errors="replace").splitlines()[-14:]:
            self.say(f"  {words[0]}: {line}")
        with contextlib.suppress(ValueError):
            return answer.returncode, json.loads(answer.stdout)
        self.check(False, f"mpswatch {words[0]} printed JSON: {answer.stdout[-600:]!r}")
        return answer.returncode, None

    def told(self, mps: Mps, *more: str) -> None:
        """Record what the daemon answers to questions, most of which mpswatch never asks."""
        servers = mps.servers()
        asked = ["get_server_list", *more, "device_query", "ps"]
        asked += [f"get_default_device_pinned_mem_limit {name}" for name in (*self.uuids, "0", "1")]
        for server in servers:
            asked += [f"{word} {server}" for word in ("get_client_list", "get_device_client_list", "get_server_status")]
            asked += [f"get_device_pinned_mem_limit {server} {name}" for name in (*self.uuids, "0", "1")]
        devices = mps.environment.get("CUDA_VISIBLE_DEVICES")
        self.replies.append(f"=== {mps.name}: CUDA_VISIBLE_DEVICES of the daemon: {devices}\n")
        self.replies += [f"$ {command}\n{mps.ask(command)}\n" for command in asked]
        self.replies.append(f"a whole look: {mps.raw(*servers)!r}\n")
        self.write("replies.txt", "".join(self.replies))

    def names(self) -> dict[str, str]:
        return {uuid: f"GPU {number}" for number, uuid in enumerate(self.uuids)}

    def plainly(self, rows: Sequence[Row] | None) -> str:
        names = self.names()
        return ", ".join(f"{kind} {daemon or ''} on {names.get(uuid, uuid)}" for uuid, kind, daemon in rows or [])


def ask(argv: Sequence[str], seconds: float = 15.0) -> str:
    """What a program prints; empty where it takes too long."""
    try:
        return subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=seconds, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"{argv}: {error}", flush=True)
        return ""


def rows_of(document: dict[str, Any]) -> dict[int, list[Row]]:
    """The tenants of a poll by pid."""
    found: dict[int, list[Row]] = {}
    for tenant in document["tenants"]["value"] or ():
        found.setdefault(tenant["pid"], []).append((tenant["gpu_uuid"], tenant["kind"], tenant["daemon"]))
    return {pid: sorted(rows) for pid, rows in found.items()}


def as_json(snapshot: PollSnapshot) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(to_json(snapshot))
    return read


def servers_gpus(document: dict[str, Any], daemon: str) -> list[str]:
    """Where the driver lists the server of a daemon."""
    rows = [row for found in rows_of(document).values() for row in found]
    return sorted(uuid for uuid, kind, name in rows if (kind, name) == ("server", daemon))


def looked(run: TwoGpus, name: str, daemons: Sequence[Mps]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """One poll in this process, kept under `name`, and what it would have swept: (daemon, uuid)."""
    snapshot = run.parts(daemons).poller.look()
    document = as_json(snapshot)
    run.keep("polls", name, document)
    return document, [(target.daemon, target.gpu_uuid) for target in targets(snapshot)]


def swept(
    run: TwoGpus, document: dict[str, Any] | None, where: str, *, daemon: str, uuid: str, caps: Sequence[int]
) -> None:
    """The document is of this GPU and under this daemon, and each cell was managed, on the right multiprocessors."""
    if not isinstance(document, dict) or "cells" not in document:
        run.check(False, f"{where}: a sweep came: {json.dumps(document)[:600]}")
        return
    at = f"{where}, {run.names().get(uuid, uuid)}"
    run.keep("sweeps", at, document)
    gpu, mps = document["gpu"] or {}, document["mps"] or {}
    run.check(gpu.get("uuid") == uuid, f"{at}: the document is of {gpu.get('uuid')}")
    run.check(mps.get("daemon") == daemon, f"{at}: under the daemon {mps.get('daemon')}")
    state = "simulated" if run.rehearsal else "measured"
    seen = {cell["cap"]: cell["sm_count"] for cell in document["cells"]}
    run.check(seen == {str(cap): SMS[str(cap)] for cap in caps}, f"{at}: multiprocessors by cap: {seen}")
    cells = [(cell["cap"], cell["state"], cell["self_was_managed"], cell["unknown_reason"], cell["failure"])
             for cell in document["cells"]]  # fmt: skip
    run.check(all(cell[1:3] == (state, True) for cell in cells), f"{at}: each cell {state} and managed: {cells}")
    tflops = {cell["cap"]: cell["tflops"] and round(cell["tflops"], 1) for cell in document["cells"]}
    run.say(f"{at}: TFLOPS {tflops}")
    run.tflops[at] = tflops


def one_at_a_time(run: TwoGpus, where: str, documents: Sequence[dict[str, Any]]) -> None:
    times = sorted((document["started_at"], document["finished_at"]) for document in documents)
    apart = all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(times))
    run.check(apart, f"{where}: never two sweeps at once: {times}")


def answered(clients: Clients, seconds: float = 15.0) -> list[str]:
    """The GPUs that light clients say they are on, or what they said instead."""
    until(lambda: "\n" in clients.said.read_text() or clients.program.poll() is not None, seconds, strict=False)
    return clients.uuids() or [clients.said.read_text().strip() or "nothing"]


class Stage:
    """Who is on the GPUs while they are swept: a service on each, a client on both, a stranger on the second."""

    def __init__(self, run: TwoGpus) -> None:
        self.run = run
        self.services: dict[str, Services] = {}
        self.both: Clients | None = None
        self.mps = run.mps("both")
        self.nowhere = run.work / "nowhere"
        self.nowhere.mkdir()
        self.pids: dict[str, list[int]] = {}
        first, second = run.uuids
        if run.stack is None:  # it imports torch while the first scene goes on
            self.services = {"stranger": Services(1, 0.05, self.nowhere, run.work / "stranger.txt", second)}
        else:
            self.pids["stranger"] = [run.stack.add_foreign("stranger", memory_mib={1: 658})]
        self.first, self.second = first, second

    def fill(self) -> None:
        if self.run.stack is None:
            for name, gpu in (("on the first", self.first), ("on the second", self.second)):
                self.services[name] = Services(1, 0.05, self.mps.pipe, self.run.work / f"{name}.txt", gpu)
            self.both = self.mps.clients(0, "--as", "both", more={"LIGHT_DEVICES": "0,1"})
            said = answered(self.both, 20)
            for name, batch in self.services.items():
                try:
                    batch.wait(40)
                except SystemExit as error:
                    self.run.check(False, f"the service {name} came: {error}")
                self.pids[name] = batch.pids()
            self.pids["on both"] = self.both.pids()
            self.run.check(sorted(said) == sorted(self.run.uuids), f"the client on both says it is on {said}")
            self.run.check(said == self.run.uuids, "CUDA numbers the GPUs as the driver does")
            return
        stack = self.run.stack
        self.pids["on the first"] = [stack.add_service("a", daemon="both", devices=[0])]
        self.pids["on the second"] = [stack.add_service("b", daemon="both", devices=[1])]
        self.pids["on both"] = [stack.add_service("c", daemon="both", memory_mib={0: 300, 1: 400})]

    def lives(self, when: str) -> None:
        """All that came are there, and none has seen a fault."""
        dead = [line for batch in self.services.values() for line in batch.dead()]
        absent = {name: pid for name, pids in self.pids.items() for pid in pids if gone(pid)}
        self.run.check(self.pids and not dead and not absent, f"{when}: everybody lives: {dead} {absent}")
        if self.run.stack is not None:
            self.run.check(not self.run.stack.unsafe_ends(), f"{when}: nobody left with work in flight")

    def leave(self) -> None:
        if self.both is not None:
            self.both.leave()
        for batch in self.services.values():
            with contextlib.suppress(subprocess.TimeoutExpired, OSError):
                batch.stop()


def a_server_at_first(run: TwoGpus, stage: Stage) -> None:
    """A server whose only client is on one GPU: where does the driver list it, and what would be swept?"""
    mps = stage.mps
    for name, gpu in (("first", stage.first), ("second", stage.second)):
        client = mps.clients(0, "--as", name, more={"CUDA_VISIBLE_DEVICES": gpu})
        run.check(answered(client) == [gpu], f"a client that names the {name} GPU by UUID is on it: {answered(client)}")
        document, aims = looked(run, f"only a client on the {name} GPU", [mps])
        here = servers_gpus(document, "both")
        run.figures[f"server_listed_with_a_client_on_the_{name}_only"] = here
        run.say(f"the server is listed on {[run.names()[uuid] for uuid in here]}")
        run.check(aims == [("both", gpu) for gpu in run.uuids], f"both GPUs would be swept: {aims}")
        run.told(mps)
        client.leave()


def tenants(run: TwoGpus, stage: Stage) -> None:
    """A service on each, one client on both, a stranger on the second: `mpswatch poll`."""
    stage.fill()
    run.say(f"started {stage.pids}")
    code, document = run.command("poll", "--config.file", str(run.configured([stage.mps])), "--json", seconds=20)
    if document is None:
        return
    run.keep("polls", "mpswatch poll", document)
    run.check(code == 0, f"mpswatch poll exits 0: {code}")
    first, second = stage.first, stage.second
    found = rows_of(document)
    wanted: dict[str, list[Row]] = {
        "on the first": [(first, "managed", "both")],
        "on the second": [(second, "managed", "both")],
        "on both": sorted([(first, "managed", "both"), (second, "managed", "both")]),
        "stranger": [(second, "foreign", None)],
    }
    for name, rows in wanted.items():
        pids = stage.pids.get(name, [])
        seen = [found.get(pid) for pid in pids]
        run.check(seen == [rows], f"{name}: {'; '.join(run.plainly(row) for row in seen)}")
    every = [row for rows in found.values() for row in rows]
    counts = {(run.names().get(uuid, uuid), kind): sum(row[:2] == (uuid, kind) for row in every)
              for uuid, kind, _ in every}  # fmt: skip
    wanted_counts = {("GPU 0", "managed"): 2, ("GPU 1", "managed"): 2, ("GPU 1", "foreign"): 1,
                     ("GPU 0", "server"): 1, ("GPU 1", "server"): 1}  # fmt: skip
    run.check(counts == wanted_counts, f"rows by GPU and kind: {counts}")
    run.check(not document["disagreements"], f"daemon and driver agree: {document['disagreements']}")
    servers = document["daemons"][0]["servers"]["value"] or [{}]
    clients = sorted(servers[0].get("clients") or ())
    run.check(clients == sorted(pid for name, pids in stage.pids.items() if name != "stranger" for pid in pids),
              f"the client list names each client once: {clients}")  # fmt: skip
    contexts = servers[0].get("contexts")
    run.figures["contexts"] = contexts
    (both,) = stage.pids.get("on both") or [0]
    devices = [context["device"] for context in contexts or () if context["pid"] == both]
    right = len(devices) == 1 and first.startswith(devices[0])
    run.check(right, f"the table of contexts has the client on both once, on its first: {devices}")
    run.told(stage.mps, "get_default_active_thread_percentage")
    run.write("nvidia-smi.xml", ask([run.nvidia_smi, "-q", "-x"]))
    compute = "--query-compute-apps=gpu_uuid,pid,process_name,used_memory"
    run.keep("nvidia_smi", "compute_apps", ask([run.nvidia_smi, compute, "--format=csv"]))
    if run.rehearsal:
        return
    settings = json.loads((path := run.configured([stage.mps])).read_text())
    settings["gpu"]["source"] = "nvidia-smi"
    path.write_text(json.dumps(settings))
    other = as_json(make_parts(load(path), simulated=False).poller.look())
    run.check(rows_of(other) == found, "nvidia-smi in the place of NVML tells the same")


def sweeps(run: TwoGpus, stage: Stage) -> None:
    """`mpswatch run`: one attempt goes through both GPUs."""
    with Watching(run.configured([stage.mps]), rehearsal=run.rehearsal) as daemon:
        runs = daemon.archive / "runs"

        def done() -> bool:
            return len(list(runs.glob("*.json"))) >= 2 or daemon.program.poll() is not None

        until(done, 50, strict=False)
        text = ""

        def published() -> bool:
            nonlocal text
            with contextlib.suppress(OSError, ValueError, KeyError):
                text = "\n".join(daemon.metrics())
            return len(values(text, "mpswatch_cap_tflops")) >= 2 * len(CAPS)

        until(published, 8, strict=False)
        run.keep("scrape", "metrics", text)
        run.keep("journal", "events", daemon.events("sweep_started") + daemon.events("sweep_refused"))
        files = sorted(runs.glob("*.json")) if runs.is_dir() else []
        run.keep("log", "mpswatch run", daemon.log.read_text(errors="replace")[-6000:])
    if len(files) != 2:
        run.say(run.documents["log"]["mpswatch run"][-3000:])
    run.check(len(files) == 2, f"two documents are archived: {[file.name for file in files]}")
    found = {file.name: json.loads(file.read_text()) for file in files}
    for uuid in run.uuids:
        mine = [(name, document) for name, document in found.items() if (document["gpu"] or {}).get("uuid") == uuid]
        swept(run, mine[0][1] if len(mine) == 1 else None, "mpswatch run", daemon="both", uuid=uuid, caps=CAPS)
        run.check(mine and uuid[:12] in mine[0][0], f"its file is named for its GPU: {[name for name, _ in mine]}")
    one_at_a_time(run, "mpswatch run", list(found.values()))
    started = [(event["daemon"], event["gpu_uuid"]) for event in run.documents["journal"]["events"]
               if event["kind"] == "sweep_started"]  # fmt: skip
    run.check(started == [("both", uuid) for uuid in run.uuids], f"the journal has one start a GPU: {started}")
    scrape(run, text)
    stage.lives("after the sweeps")


def scrape(run: TwoGpus, text: str) -> None:
    for name, each in (("mpswatch_cap_tflops", 5), ("mpswatch_cap_sm_count", 5)):
        lines = values(text, name)
        counts = [sum(f'uuid="{uuid}"' in labels for labels, _ in lines) for uuid in run.uuids]
        run.check(counts == [each, each], f"the scrape has {name} for both GPUs: {counts}")
    managed = [value for labels, value in values(text, "mpswatch_managed_clients") if 'daemon="both"' in labels]
    run.check(managed == [3.0], f"the scrape counts three managed clients: {managed}")
    foreign = values(text, "mpswatch_foreign_tenants")
    by_gpu = [[value for labels, value in foreign if f'uuid="{uuid}"' in labels] for uuid in run.uuids]
    run.check(by_gpu == [[0.0], [1.0]], f"and one foreign tenant on the second GPU: {by_gpu}")
    memory = values(text, "mpswatch_managed_memory_bytes")
    known = [any(f'uuid="{uuid}"' in labels and value > 0 for labels, value in memory) for uuid in run.uuids]
    run.check(known == [True, True], f"and the memory of managed clients on each: {memory}")


def restricted(run: TwoGpus, stage: Stage) -> None:
    """A second daemon that is limited to the second GPU by UUID; both are found by `daemons: auto`."""
    second = stage.second
    with run.mps("second", devices=second) as mps:
        client = mps.clients(0, "--as", "ranker")
        run.check(answered(client) == [second], f"its client's device 0 is the second GPU: {answered(client)}")
        if not run.rehearsal:
            stray = mps.clients(0, "--as", "stray", more={"CUDA_VISIBLE_DEVICES": stage.first})
            said = answered(stray, 8)
            run.figures["client_that_names_a_gpu_that_its_daemon_does_not_serve"] = said
            run.check(said != [stage.first], f"a client that names the other GPU does not get it there: {said}")
            stray.leave()
        path = run.configured([stage.mps, mps], auto=True)
        _, document = run.command("poll", "--config.file", str(path), "--json", seconds=20)
        if document is not None:
            run.keep("polls", "daemons: auto", document)
            found = {daemon["pipe_directory"]: daemon for daemon in document["daemons"]}
            pipes = {str(stage.mps.pipe), str(mps.pipe)}
            run.check(pipes <= set(found), f"both daemons are found: {sorted(found)}")
            look = found.get(str(mps.pipe), {})
            run.check(look.get("visible_devices") == [second], f"its GPUs are known: {look.get('visible_devices')}")
            name = look.get("name", "")
            here = servers_gpus(document, name)
            run.check(here == [second], f"its server is on the second GPU only: {here}")
            rows = rows_of(document).get(client.pids()[0])
            run.check(rows == [(second, "managed", name)], f"its client: {run.plainly(rows)}")
            code, sweep = run.command("sweep", "--config.file", str(path), "--daemon", name, "--json", seconds=40)
            run.check(code == 0, f"mpswatch sweep exits 0: {code}")
            run.check(isinstance(sweep, dict), "only one GPU is swept under it")
            swept(run, sweep, "limited by UUID", daemon=name, uuid=second, caps=CAPS)
        run.told(mps)
        client.leave()
    stage.lives("after the restricted daemon")


def by_index(run: TwoGpus, stage: Stage) -> None:
    """Limited to the second GPU by its index."""
    with run.mps("indexed", devices="1") as mps:
        client = mps.clients(0, "--as", "ranker")
        on = answered(client)
        run.check(on == [stage.second], f"its client's device 0 is the second GPU: {on}")
        document, aims = looked(run, "limited by index", [mps])
        run.check(aims == [("indexed", stage.second)], f"only the second GPU would be swept: {aims}")
        run.check(servers_gpus(document, "indexed") == on, f"its server is there: {servers_gpus(document, 'indexed')}")
        sweep_here(run, mps, "limited by index", [stage.second], (50, 25))
        run.told(mps)
        client.leave()
    with run.mps("unused", devices="1") as mps:
        _, aims = looked(run, "limited by index, no server yet", [mps])
        run.check(aims == [("unused", stage.second)], f"without a server too: {aims}")


def reversed_order(run: TwoGpus, stage: Stage) -> None:
    """GPUs in the other order, for a daemon (its clients take no notice) and for a client (it does): UUIDs hold."""
    backwards = ",".join(reversed(run.uuids))
    with run.mps("reversed", devices=backwards) as mps:
        client = mps.clients(0, "--as", "ranker")
        run.check(answered(client) == [stage.first], f"its clients' device 0 stays the first: {answered(client)}")
        document, aims = looked(run, "reversed", [mps])
        rows = rows_of(document).get(client.pids()[0])
        run.check(rows == [(stage.first, "managed", "reversed")], f"and the poll says so: {run.plainly(rows)}")
        run.check(aims == [("reversed", uuid) for uuid in run.uuids], f"both would be swept: {aims}")
        (look,) = document["daemons"]
        run.say(f"visible {look.get('visible_devices')}, limits {look.get('default_memory_limits')}")
        sweep_here(run, mps, "reversed", run.uuids, (50, 10))
        run.told(mps)
        client.leave()
    ways = {"by UUID": backwards, "by index": "1,0"}
    if run.rehearsal:  # whose clients are on one GPU
        ways = {"by UUID": stage.second}
    for way, order in ways.items():
        devices = {} if run.rehearsal else {"LIGHT_DEVICES": "0,1"}
        client = stage.mps.clients(0, "--as", "backwards", more={"CUDA_VISIBLE_DEVICES": order, **devices})
        on = answered(client)
        wanted = [stage.second] if run.rehearsal else list(reversed(run.uuids))
        run.check(on == wanted, f"a client that reverses them {way} is on {on}")
        document, _ = looked(run, f"a client that reverses them {way}", [stage.mps])
        rows = rows_of(document).get(client.pids()[0]) or []
        run.check(rows == sorted((uuid, "managed", "both") for uuid in wanted), f"and polled so: {run.plainly(rows)}")
        client.leave()
    if not run.rehearsal:
        with run.mps("reversed-by-index", devices="1,0") as mps:
            client = mps.clients(0, "--as", "ranker")
            run.check(answered(client) == [stage.first], f"by index too: {answered(client)}")
            _, aims = looked(run, "reversed by index", [mps])
            run.check(aims == [("reversed-by-index", uuid) for uuid in run.uuids], f"both would be swept: {aims}")
            run.told(mps)
            client.leave()
    stage.lives("at the end")


def sweep_here(run: TwoGpus, mps: Mps, where: str, uuids: Sequence[str], caps: Sequence[int]) -> None:
    """A sweep in this process. While each cell is measured nvidia-smi is asked on which GPU that client is."""
    parts = run.parts([mps], caps=list(caps))
    witnessed: list[tuple[int, list[str]]] = []

    def on_step(step: object) -> None:
        if isinstance(step, CellMeasuring):
            listed = ask([run.nvidia_smi, "--query-compute-apps=pid,gpu_uuid", "--format=csv,noheader"], 8)
            lines = [line.replace(",", " ").split() for line in listed.splitlines()]
            on = [words[1] for words in lines if words[:1] == [str(step.client_pid)]]
            witnessed.append((step.client_pid, on))

    outcome = sweep_once(
        parts, parts.poller.look(), trigger="test", stop=Stop(), progress=on_step, work_directory=run.work
    )
    found = [json.loads(to_json(each)) for each in outcome.outcomes]
    run.check(len(found) == len(uuids), f"{where}: {len(found)} sweeps came")
    for document, uuid in zip(found, uuids, strict=False):
        swept(run, document, where, daemon=mps.name, uuid=uuid, caps=caps)
    one_at_a_time(run, where, [document for document in found if "finished_at" in document])
    told = [on for _, on in witnessed]
    wanted = [[uuid] for uuid in uuids for _ in caps]
    run.check(told == wanted or run.rehearsal, f"{where}: nvidia-smi says on which GPU each client was: {told}")


SCENES: dict[str, Callable[[TwoGpus, Stage], None]] = {
    "a_server_at_first": a_server_at_first,
    "tenants": tenants,
    "sweeps": sweeps,
    "restricted": restricted,
    "by_index": by_index,
    "reversed_order": reversed_order,
}


def finish(run: TwoGpus) -> None:
    """Write down what was found, let all daemons go, and leave: nothing that hangs may hold the exit."""
    run.save()
    failed = [check["what"] for check in run.checks if not check["holds"]]
    run.say(f"{len(run.checks) - len(failed)} checks held, {len(failed)} did not")
    for what in failed:
        print(f"  FAIL {what}")
    sys.stdout.flush()
    shutil.rmtree(run.work, ignore_errors=True)
    os._exit(1 if failed else 0)


def too_late(run: TwoGpus, seconds: float) -> None:
    """Whatever hangs: what was found so far is what there is. Clients leave when our pipes close."""
    run.check(False, f"it was done within {seconds:g} s")
    for mps in run.running:
        with contextlib.suppress(Exception):
            mps.ask("quit")
    finish(run)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--rehearsal", action="store_true")
    parser.add_argument("--only", nargs="*", default=list(SCENES), choices=list(SCENES))
    parser.add_argument("--seconds", type=float, default=150.0, help="it ends by then, whatever hangs")
    options = parser.parse_args()
    if missing := lacks(rehearsal=options.rehearsal):
        print("this cannot run here:\n  " + "\n  ".join(missing), file=sys.stderr)
        return 2
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_MPS_PIPE_DIRECTORY"):
        if name in os.environ:
            print(f"taken out of the environment: {name}={os.environ.pop(name)}", flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="mw-"))
    work.chmod(0o755)
    shutil.copy(Path(__file__).resolve().parent / "light.py", work)
    (work / "light.py").chmod(0o644)
    run = TwoGpus(options.output, work, rehearsal=options.rehearsal)
    if len(run.uuids) != 2:
        finish(run)
    watch = threading.Timer(options.seconds, too_late, (run, options.seconds))
    watch.daemon = True
    watch.start()
    stage = Stage(run)
    with contextlib.ExitStack() as ends:
        if run.stack is not None:
            ends.callback(run.stack.stop)
        ends.enter_context(stage.mps)
        ends.callback(stage.leave)
        for name in options.only:
            run.say(f"--- {name}: {(SCENES[name].__doc__ or '').strip()}")
            try:
                SCENES[name](run, stage)
            except (Exception, SystemExit):  # noqa: BLE001 -- the others may still tell something
                run.check(False, f"{name} broke off: {traceback.format_exc()[-1500:]}")
    finish(run)
    return 1


if __name__ == "__main__":
    sys.exit(main())
