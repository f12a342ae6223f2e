"""Costs on a real GPU, each beside what it is compared with in the same run: poll, sweep, scrape, memory, neighbour.

usage: bench.py OUTPUT_DIRECTORY [--budget SECONDS] [--repeats N] [--looks N] [--rehearsal]

Writes bench.json after every step (a run that is cut short keeps what it has), the last sweep's document, the daemon's
log and torch's import in detail. A step that fails says so and the next one goes on; one for which the budget has no
room is left out, and named. nvitop-exporter is measured where it can be imported. Exits 1 when a step failed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE)]

from bench_poll import mapped  # noqa: E402 -- the path above is for plain python3
from main_job import Services, control  # noqa: E402

CAPS = "100,75,50,25,10"
SCRAPES = 100
IDLE_SECONDS = 8.0

COMPILED = str(Path(tempfile.gettempdir()) / "mpswatch-bench-compiled")

IMPORTS: dict[str, tuple[list[str], dict[str, str]]] = {
    "again": ([], {}),
    "compiled anew into a folder of its own": ([], {"PYTHONPYCACHEPREFIX": COMPILED, "PYTHONDONTWRITEBYTECODE": ""}),
    "compiled before": ([], {"PYTHONPYCACHEPREFIX": COMPILED, "PYTHONDONTWRITEBYTECODE": "1"}),
    "as the client's interpreter is started": ([], {"PYTHONDONTWRITEBYTECODE": "1"}),
    "TORCH_DEVICE_BACKEND_AUTOLOAD=0": ([], {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}),
    "-I -S with torch's folder alone on the path": (["-I", "-S"], {}),
    "-OO": (["-OO"], {}),
    "without numpy": ([], {"HIDE": "numpy"}),
    "without sympy, networkx, jinja2": ([], {"HIDE": "sympy networkx jinja2"}),
    "torch.distributed and torch._dynamo said to be absent": ([], {"HIDE": "torch.distributed torch._dynamo"}),
    "without a look at the garbage": ([], {"COLLECT": "0"}),
}
IMPORT = """
import gc, os, sys, time
began = time.monotonic()
for name in os.environ.get("HIDE", "").split():
    sys.modules[name] = None
if os.environ.get("COLLECT") == "0":
    gc.disable()
sys.path.append({folder!r})
import torch
kept = [m.__cached__ for m in list(sys.modules.values()) if isinstance(getattr(m, "__cached__", None), str)]
compiled = sum(map(os.path.exists, kept))
print(len(kept), compiled, round(time.monotonic() - began, 3), len(sys.modules), round(time.process_time(), 3))
"""


class Bench:
    """What was found, what failed, what there is time for."""

    def __init__(self, output: Path, budget: float) -> None:
        self.output = output
        self.began = time.monotonic()
        self.budget = budget
        self.found: dict[str, Any] = {"machine": machine()}
        self.failed: list[str] = []

    def step(self, name: str, seconds: float, work: Callable[[], Any]) -> Any:
        """Do `work`, which takes about `seconds`, and keep what it returns under `name`."""
        spent = time.monotonic() - self.began
        if spent + seconds > self.budget:
            print(f"[{spent:6.1f}] {name}: left out, no time", flush=True)
            self.found.setdefault("left out", []).append(name)
            return None
        value = None
        try:
            value = self.found[name] = work()
        except Exception as error:  # noqa: BLE001 -- whatever it is, the other steps go on
            self.failed.append(f"{name}: {error!r}")
            self.found[name] = {"error": traceback.format_exc()[-1500:]}
        took = time.monotonic() - self.began - spent
        self.found.setdefault("step seconds", {})[name] = round(took, 2)
        print(f"[{spent:6.1f}] {name} ({took:.1f} s): {json.dumps(self.found[name])[:900]}", flush=True)
        self.save()
        return value

    def save(self) -> None:
        self.found["failed"] = self.failed
        partial = self.output / "bench.json.part"
        partial.write_text(json.dumps(self.found, indent=1))
        partial.replace(self.output / "bench.json")


class Real:
    """A private control daemon and its services on the GPU."""

    def __init__(self, work: Path) -> None:
        self.pipe, self.logs, self.nowhere = work / "mps", work / "log", work / "nowhere"
        for directory in (self.pipe, self.logs, self.nowhere):
            directory.mkdir()
        self.work = work
        self.batches: list[Services] = []
        os.environ["CUDA_MPS_LOG_DIRECTORY"] = str(self.logs)
        self.programs: list[str] = []
        self.settings: dict[str, Any] = {"sweep": {"client": {"python": sys.executable}}}
        start = ["nvidia-cuda-mps-control", "-d"]
        subprocess.run(start, env=os.environ | {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipe)}, check=True, timeout=30)

    def add(self, managed: int, foreign: int, period: float) -> None:
        new = [
            Services(number, period, pipe, self.work / f"services-{len(self.batches)}-{index}.txt")
            for index, (number, pipe) in enumerate(((managed, self.pipe), (foreign, self.nowhere)))
            if number
        ]
        self.batches += new
        for batch in new:
            batch.wait()

    def daemon(self, configuration: Path) -> list[str]:
        return [sys.executable, "-m", "mpswatch", "run", "--config.file", str(configuration)]

    def dead(self) -> list[str]:
        return [line for batch in self.batches for line in batch.dead()]

    def close(self) -> None:
        for batch in self.batches:
            with contextlib.suppress(Exception):
                batch.stop()
        control(self.pipe, "quit")


class Rehearsed:
    """The rehearsal's stack, to try this script out: nothing it says of costs means anything."""

    def __init__(self, work: Path) -> None:
        from mpswatch.rehearsal.stack import Stack

        self.stack = Stack(work / "stack")
        self.stack.start()
        self.pipe, self.logs = self.stack.pipe_directory, self.stack.log_directory
        self.programs = ["--rehearsal", str(self.stack.control_program), str(self.stack.nvidia_smi)]
        self.settings = {
            "mps": {"control_program": str(self.stack.control_program)},
            "gpu": {"source": "nvidia-smi", "nvidia_smi": str(self.stack.nvidia_smi)},
            "sweep": {"size": 64},
        }

    def add(self, managed: int, foreign: int, period: float) -> None:
        for number in range(managed):
            self.stack.add_service(f"s{period}-{number}", busy=False)
        for number in range(foreign):
            self.stack.add_foreign(f"f{period}-{number}", 300)

    def daemon(self, configuration: Path) -> list[str]:
        return [sys.executable, str(ROOT / "tests" / "end_to_end" / "rehearse.py"), str(configuration)]

    def dead(self) -> list[str]:
        return []

    def close(self) -> None:
        self.stack.stop()


def machine() -> dict[str, Any]:
    found: dict[str, Any] = {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    with contextlib.suppress(OSError):
        found["huge pages"] = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text().strip()
    with contextlib.suppress(OSError, IndexError):
        found["cpu"] = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())[0]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        query = ["nvidia-smi", "--query-gpu=name,driver_version,uuid", "--format=csv,noheader"]
        found["gpu"] = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    from importlib import metadata

    for name in ("torch", "nvitop-exporter", "prometheus-client", "nvidia-ml-py", "msgspec", "uvicorn"):
        with contextlib.suppress(Exception):
            found[name] = metadata.version(name)
    return found


def configure(work: Path, stack: Real | Rehearsed, port: int) -> Path:
    settings: dict[str, Any] = {
        "daemons": [{"name": "bench", "pipe_directory": str(stack.pipe), "log_directory": str(stack.logs)}],
        "poll": {"interval": "1s"},
        "mps": {"deadline": "2s"},
        "gpu": {"deadline": "2s"},
        "sweep": {"interval": "1h", "jitter": "0s", "settle": "0s"},
        "archive": {"directory": str(work / "archive")},
        "web": {"listen_address": f"127.0.0.1:{port}"},
        "log": {"format": "json"},
    }
    for name, section in stack.settings.items():
        settings[name] = {**settings.get(name, {}), **section}
    path = work / "mpswatch.yml"
    path.write_text(json.dumps(settings))
    return path


def environment() -> dict[str, str]:
    """With the repository on the path; children are started in other folders too."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}


def asked(arguments: list[str], *, env: dict[str, str] | None = None, seconds: float = 150) -> Any:
    """The JSON object that a program of ours prints last."""
    answer = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=env or environment(),
        cwd=ROOT,
        timeout=seconds,
        check=False,
    )
    if answer.returncode:
        raise RuntimeError(
            f"{arguments[:3]} ended with {answer.returncode}: {answer.stderr[-900:]}{answer.stdout[-300:]}"
        )
    return json.loads(answer.stdout[answer.stdout.index("{") :])


# --- sweep


def sweep(bench: Bench, configuration: Path) -> dict[str, Any]:
    """`mpswatch sweep` as a user calls it, and where its time went."""
    began = time.monotonic()
    document = asked(["-m", "mpswatch", "sweep", "--config.file", str(configuration), "--json"])
    ended = time.monotonic()
    (bench.output / "sweep.json").write_text(json.dumps(document, indent=1))
    launcher = document["launcher_timings"]
    cells = {
        cell["cap"]: {"tflops": round(cell["tflops"] or 0, 1), "managed": cell["self_was_managed"]}
        | {name: round(value, 4) for name, value in (cell["timings"] or {}).items() if value is not None}
        for cell in document["cells"]
    }
    return {
        "command": round(ended - began, 3),
        "began": began,
        "ended": ended,
        "sweep": launcher["sweep"],
        "import": launcher["import"],
        "ready": launcher["ready"],
        "after_import": round(launcher["sweep"] - launcher["import"], 3),
        "after_ready": round(launcher["sweep"] - launcher["ready"], 3),
        "in_cells": round(sum(cell.get("total", 0) for cell in cells.values()), 3),
        "gpu_busy": round(sum(cell.get("busy", 0) for cell in cells.values()), 4),
        "attached": round(sum(cell.get("attached_to_gone", 0) + cell.get("allocate", 0) for cell in cells.values()), 3),
        "cells": cells,
    }


def plain(stack: Real) -> dict[str, Any]:
    env = environment() | {"CUDA_MPS_PIPE_DIRECTORY": str(stack.pipe), "OMP_NUM_THREADS": "1"}
    return dict(asked([str(HERE / "plain_harness.py"), CAPS, "4096", "80"], env=env))


def compared(found: dict[str, Any]) -> dict[str, Any]:
    """Ratios of the medians, of the runs by turns."""

    def median(kind: str, key: str) -> float:
        return statistics.median(run[key] for name, run in found.items() if name.startswith(kind) and key in run)

    theirs = median("plain harness", "seconds")
    return {
        "plain": theirs,
        "cold": median("sweep", "sweep"),
        "after import": median("sweep", "after_import"),
        "cold, times faster": round(theirs / median("sweep", "sweep"), 2),
        "the whole command, times faster": round(theirs / median("sweep", "command"), 2),
        "after import, times faster": round(theirs / median("sweep", "after_import"), 2),
    }


class Neighbour:
    """busy_neighbour.py on the stack."""

    def __init__(self, stack: Real) -> None:
        self.program = subprocess.Popen(
            [sys.executable, str(HERE / "busy_neighbour.py"), "4096"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment() | {"CUDA_MPS_PIPE_DIRECTORY": str(stack.pipe)},
        )

    def say(self, word: str) -> None:
        assert self.program.stdin is not None
        self.program.stdin.write(word + "\n")
        self.program.stdin.flush()

    def hear(self) -> str:
        assert self.program.stdout is not None
        line = self.program.stdout.readline().strip()
        if not line or line.startswith("dead"):
            raise RuntimeError(f"the neighbour is gone: {line}")
        return line

    def leave(self) -> None:
        assert self.program.stdin is not None
        self.program.stdin.close()
        self.program.wait(30)


def beside_a_neighbour(bench: Bench, stack: Real, configuration: Path, neighbour: Neighbour) -> dict[str, Any]:
    """A neighbour's throughput around and during a sweep; what it lost, in seconds of its own work."""
    neighbour.hear()
    neighbour.say("go")
    time.sleep(5.0)  # power and clocks settle within seconds
    taken = sweep(bench, configuration)
    time.sleep(4.0)
    neighbour.say("stop")
    bins = json.loads(neighbour.hear().partition(" ")[2])
    began, ended = taken["began"], taken["ended"]
    rate_before = rate(bins, began - 2.5, began - 0.1)
    rate_after = rate(bins, ended + 0.5, ended + 3.5)
    done = sum(count for at, count in bins if began <= at < ended)
    usual = (rate_before + rate_after) / 2
    worst = min(rate(bins, at, at + 0.2) for at in [began + 0.1 * n for n in range(int((ended - began) * 10) - 1)])
    return {
        "products a second before": round(rate_before, 1),
        "after": round(rate_after, 1),
        "during": round(done / (ended - began), 1),
        "lost, seconds of its work": round((ended - began) - done / usual, 3),
        "lost by the rate before alone": round((ended - began) - done / rate_before, 3),
        "lost by the rate after alone": round((ended - began) - done / rate_after, 3),
        "slowest 0.2 s, share of usual": round(worst / usual, 3),
        "sweep": taken,
    }


def rate(bins: list[list[float]], begin: float, end: float) -> float:
    return sum(count for at, count in bins if begin <= at < end) / (end - begin)


# --- daemon and nvitop-exporter


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def fetched(port: int, path: str = "/metrics") -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:  # our own
        return bytes(reply.read())


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(int(fields[number]) for number in (11, 12, 13, 14)) / os.sysconf("SC_CLK_TCK")


def cpu_exact(pid: int) -> float:
    """Of the threads that are there now, without children: in nanoseconds by the kernel's scheduler."""
    return sum(int(path.read_text().split()[0]) / 1e9 for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def resident(pid: int) -> dict[str, float]:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    kib = {key: int(text.split(f"\n{key}:")[1].split()[0]) for key in ("Rss", "Pss", "Anonymous", "AnonHugePages")}
    return {name.lower() + "_mib": round(number / 1024, 2) for name, number in kib.items()} | {
        "threads": len(list(Path(f"/proc/{pid}/task").iterdir()))
    }


@contextlib.contextmanager
def started(argv: list[str], log: Path, port: int, path: str = "/metrics") -> Iterator[subprocess.Popen[bytes]]:
    """A program that serves; SIGTERM at the end of the block."""
    # as installed: compiled once before, whatever this machine's environment says
    env = environment() | {"PYTHONPYCACHEPREFIX": COMPILED, "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run([sys.executable, "-c", "import mpswatch.daemon.run, mpswatch.cli.run_command"], env=env, check=True)
    with log.open("wb") as out:
        program = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, env=env, cwd=ROOT)
    try:
        end = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError):
                fetched(port, path)
                break
            if program.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{argv[1:4]} does not serve: {log.read_text()[-900:]}")
            time.sleep(0.05)
        yield program
    finally:
        program.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(20)
        if program.poll() is None:
            program.kill()


def scraped(pid: int, port: int) -> dict[str, Any]:
    walls = []
    busy = cpu_exact(pid)
    for _ in range(SCRAPES):
        began = time.monotonic()
        text = fetched(port)
        walls.append(1e3 * (time.monotonic() - began))
    busy = cpu_exact(pid) - busy
    walls.sort()
    return {
        "wall_ms_median": round(walls[len(walls) // 2], 3),
        "wall_ms_p99": round(walls[int(len(walls) * 0.99)], 3),
        "cpu_ms_each": round(1e3 * busy / SCRAPES, 3),
        "bytes": len(text),
        "series": sum(1 for line in text.splitlines() if line and not line.startswith(b"#")),
    }


def run_daemon(bench: Bench, stack: Real | Rehearsed, configuration: Path, port: int) -> dict[str, Any]:
    """Resident size after start and after a sweep, a scrape, and the CPU of a poll each second."""
    found: dict[str, Any] = {}
    log = bench.output / "daemon.log"
    with started(stack.daemon(configuration), log, port, "/-/ready") as daemon:
        time.sleep(3)
        found["after start"] = resident(daemon.pid)
        found["by file, KiB"] = mapped(Path(f"/proc/{daemon.pid}/smaps").read_text())
        found["scrape"] = scraped(daemon.pid, port)
        busy, began = cpu_seconds(daemon.pid), time.monotonic()
        time.sleep(IDLE_SECONDS)
        found["cpu_ms_a_second"] = round(1e3 * (cpu_seconds(daemon.pid) - busy) / (time.monotonic() - began), 2)
        daemon.send_signal(signal.SIGUSR1)
        end = time.monotonic() + 25
        while b"mpswatch_sweeps_total{" in (text := fetched(port)) and time.monotonic() < end:
            if any(float(line.split()[-1]) for line in text.splitlines() if line.startswith(b"mpswatch_sweeps_total{")):
                break
            time.sleep(0.5)
        found["sweeps"] = [
            line.decode() for line in text.splitlines()
            if line.startswith(b"mpswatch_sweeps_total{") and not line.endswith(b" 0.0")
        ]  # fmt: skip
        time.sleep(2)
        found["after a sweep"] = resident(daemon.pid)
    found["exit"] = daemon.returncode
    return found


def run_nvitop(work: Path) -> dict[str, Any]:
    port = free_port()
    argv = [sys.executable, "-m", "nvitop_exporter", "--port", str(port), "--interval", "1"]
    with started(argv, work / "nvitop.log", port) as exporter:
        time.sleep(3)
        found: dict[str, Any] = {"after start": resident(exporter.pid), "scrape": scraped(exporter.pid, port)}
        busy, began = cpu_seconds(exporter.pid), time.monotonic()
        time.sleep(IDLE_SECONDS / 2)
        found["cpu_ms_a_second"] = round(1e3 * (cpu_seconds(exporter.pid) - busy) / (time.monotonic() - began), 2)
    return found


# --- torch's import


def import_once(arguments: list[str], extra: dict[str, str]) -> dict[str, Any]:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return {"error": "there is no torch"}
    folder = str(Path(spec.origin).parents[1])
    env = environment() | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""} | extra
    answer = subprocess.run(
        [sys.executable, *arguments, "-c", IMPORT.format(folder=folder)],
        capture_output=True, text=True, env=env, cwd="/", timeout=60, check=False,
    )  # fmt: skip
    if answer.returncode:
        return {"error": answer.stderr[-300:]}
    files, compiled, seconds, modules, busy = answer.stdout.split()[-5:]
    return {
        "seconds": float(seconds), "modules": int(modules), "cpu": float(busy), "files": int(files),
        "of them compiled": int(compiled),
    }  # fmt: skip


def import_in_detail(output: Path) -> list[str]:
    """The dearest modules by their own time, of one import with -X importtime."""
    answer = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import torch"],
        capture_output=True, text=True, env=environment(), cwd="/", timeout=60, check=False,
    )  # fmt: skip
    (output / "import.txt").write_text(answer.stderr)
    rows = [line.removeprefix("import time:").split("|") for line in answer.stderr.splitlines() if line.count("|") == 2]
    timed = [(int(own), int(both), name.strip()) for own, both, name in rows if own.strip().isdigit()]
    own = [f"{mine / 1000:.0f} ms {name}" for mine, _, name in sorted(timed, reverse=True)[:14]]
    both = [
        f"{all_of_it / 1000:.0f} ms with all it imports {name}"
        for _, all_of_it, name in sorted(timed, key=lambda row: -row[1])[:40]
    ]
    return own + both


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--budget", type=float, default=230.0)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--looks", type=int, default=60)
    parser.add_argument("--rehearsal", action="store_true")
    parser.add_argument("--short", action="store_true", help="46 processes, the daemon, and torch's import: no sweeps")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    bench = Bench(options.output, options.budget)
    work = Path(tempfile.mkdtemp(prefix="mpswatch-bench-"))
    stack = Rehearsed(work) if options.rehearsal else Real(work)
    try:
        steps = in_short if options.short else everything
        steps(bench, stack, work, options.repeats, str(options.looks))
    finally:
        bench.found["services dead"] = stack.dead()
        stack.close()
        bench.save()
        shutil.rmtree(work, ignore_errors=True)
    print(json.dumps({"failed": bench.failed, "seconds": round(time.monotonic() - bench.began, 1)}), flush=True)
    return 1 if bench.failed else 0


def in_short(bench: Bench, stack: Real | Rehearsed, work: Path, _repeats: int, looks: str) -> None:
    """What is dear to wait for left out."""
    port = free_port()
    configuration = configure(work, stack, port)
    here = str(HERE / "bench_poll.py")
    for name, (arguments, extra) in list(IMPORTS.items())[:4]:
        bench.step("import " + name, 6, lambda arguments=arguments, extra=extra: import_once(arguments, extra))
    bench.step("services 46", 18, lambda: stack.add(40, 6, 0.0))
    bench.step("poll 46", 6, lambda: asked([here, "poll", str(stack.pipe), looks, *stack.programs]))
    if importlib.util.find_spec("nvitop_exporter") is not None:
        bench.step("nvitop 46", 6, lambda: asked([here, "nvitop", looks]))
    bench.step("daemon", 25, lambda: run_daemon(bench, stack, configuration, port))
    bench.step("import in detail", 6, lambda: import_in_detail(bench.output))


def everything(bench: Bench, stack: Real | Rehearsed, work: Path, repeats: int, looks: str) -> None:
    """All steps, the dearest knowledge first."""
    port = free_port()
    configuration = configure(work, stack, port)
    with_nvitop = importlib.util.find_spec("nvitop_exporter") is not None
    here = str(HERE / "bench_poll.py")

    def measure_polls(number: int) -> None:
        bench.step(f"poll {number}", 6, lambda: asked([here, "poll", str(stack.pipe), looks, *stack.programs]))
        if with_nvitop:
            bench.step(f"nvitop {number}", 5, lambda: asked([here, "nvitop", looks]))

    if isinstance(stack, Real):
        bench.step("import first", 8, lambda: import_once([], {}))
        bench.step("memory of NVML alone", 2, lambda: asked([here, "memory"]))
    bench.step("services 1", 12, lambda: stack.add(1, 0, 0.05))
    measure_polls(1)
    for number in range(repeats):
        bench.step(f"sweep {number}", 9, lambda: sweep(bench, configuration))
        if isinstance(stack, Real):
            bench.step(f"plain harness {number}", 26, lambda: plain(stack))
    bench.step("sweep last", 9, lambda: sweep(bench, configuration))
    if isinstance(stack, Real):
        bench.step("compared", 0, lambda: compared(bench.found))
        bench.step("services 10", 12, lambda: stack.add(8, 1, 0.0))
        measure_polls(10)
        neighbour = Neighbour(stack)
        bench.step("neighbour", 26, lambda: beside_a_neighbour(bench, stack, configuration, neighbour))
        with contextlib.suppress(Exception):
            neighbour.leave()
        bench.step("services 46", 18, lambda: stack.add(31, 5, 0.0))
    else:
        bench.step("services 10", 12, lambda: stack.add(8, 1, 1.0))
        measure_polls(10)
    measure_polls(46)
    bench.step("daemon", 25, lambda: run_daemon(bench, stack, configuration, port))
    if with_nvitop:
        bench.step("nvitop-exporter", 12, lambda: run_nvitop(work))
    for name, (arguments, extra) in IMPORTS.items():
        bench.step("import " + name, 5, lambda arguments=arguments, extra=extra: import_once(arguments, extra))
    bench.step("import in detail", 6, lambda: import_in_detail(bench.output))


if __name__ == "__main__":
    sys.exit(main())
