"""Evidence on a real GPU that is idle otherwise: repeatability, the same matmul outside MPS, the interference matrix.

usage: evidence.py OUTPUT_DIRECTORY [--part all|repeatability|outside|matrix] [--sweeps N] [--seconds S]
                   [--alternations N] [--caps LIST] [--rehearse]

Starts a control daemon of its own (root, private directories) and ends it. Everything that is found is in
OUTPUT_DIRECTORY/evidence.json as soon as it is known, with the archived documents beside it. No part begins anything
that it does not expect to finish within its `--seconds` (170 for repeatability, 30 outside, 100 for the matrix).
Exits 0 when everything ran and every goal was met, 1 when a goal was missed, 2 when something did not run.
With --rehearse it runs on an embedded rehearsal stack, without a GPU: the numbers mean nothing then.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from mpswatch.config import load  # noqa: E402 -- the checkout is what is tested
from mpswatch.daemon.once import sweep_once  # noqa: E402
from mpswatch.daemon.parts import Parts, make_parts  # noqa: E402
from mpswatch.documents import Event, InterferenceDocument, SweepDocument, to_json  # noqa: E402
from mpswatch.evidence.median import coefficient_of_variation, median_interval  # noqa: E402
from mpswatch.process.bundle import client_zipapp  # noqa: E402
from mpswatch.sweep.conversation import Conversation  # noqa: E402
from mpswatch.sweep.log import LauncherLog  # noqa: E402
from mpswatch.sweep.messages import Attached, Gone, Ready, Result  # noqa: E402
from mpswatch.sweep.runtime import ProcessRuntime  # noqa: E402
from mpswatch.sweep.stop import Stop  # noqa: E402

BURST_GOAL, SUSTAINED_GOAL, OUTSIDE_GOAL = 0.003, 0.005, 0.01
SECONDS = {"repeatability": 170.0, "outside": 30.0, "matrix": 100.0}


def say(*words: object) -> None:
    print(f"[{time.monotonic() - BEGAN:6.1f} s]", *words, flush=True)


BEGAN = time.monotonic()


class Findings:
    """What is known so far, on the disk at any moment."""

    def __init__(self, output: Path) -> None:
        self.path = output / "evidence.json"
        self.found: dict[str, Any] = {"goals_missed": [], "not_run": []}
        if self.path.exists():  # another part, run earlier into the same directory
            self.found |= json.loads(self.path.read_text())

    def put(self, name: str, value: object) -> None:
        self.found[name] = value
        temporary = self.path.with_suffix(".writing")
        temporary.write_text(json.dumps(self.found, indent=1))
        temporary.rename(self.path)

    def missed(self, what: str) -> None:
        say("GOAL MISSED:", what)
        self.put("goals_missed", [*self.found["goals_missed"], what])

    def did_not_run(self, what: str) -> None:
        say("DID NOT RUN:", what)
        self.put("not_run", [*self.found["not_run"], what])


@contextlib.contextmanager
def real_stack(work: Path, output: Path) -> Iterator[dict[str, Any]]:
    """A private control daemon; its logs' last lines go to the output."""
    pipe, logs, nowhere = work / "mps", work / "log", work / "nowhere"
    for directory in (pipe, logs, nowhere):
        directory.mkdir()
    environment = os.environ | {"CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_MPS_LOG_DIRECTORY": str(logs)}
    subprocess.run(["nvidia-cuda-mps-control", "-d"], env=environment, check=True)
    say("private control daemon started")
    try:
        yield {
            "daemons": [{"name": "private", "pipe_directory": str(pipe), "log_directory": str(logs)}],
            "outside": nowhere,
        }
    finally:
        for name in ("control.log", "server.log"):
            with contextlib.suppress(OSError):
                lines = (logs / name).read_text(errors="replace").splitlines()
                (output / f"{name}.tail").write_text("\n".join(lines[-80:]) + "\n")
                faults = [line for line in lines if re.search(r"\bfault|illegal", line, re.I)]
                if faults:
                    say(f"FAULTS in {name}:", *faults[:5])
        subprocess.run(
            ["nvidia-cuda-mps-control"], input=b"quit\n", env=environment, timeout=30, check=False, capture_output=True
        )


@contextlib.contextmanager
def rehearsed_stack(work: Path) -> Iterator[dict[str, Any]]:
    from mpswatch.rehearsal import Stack

    with Stack(work / "inside") as inside, Stack(work / "outside") as outside:
        yield {
            "daemons": [{"name": "private", "pipe_directory": str(inside.pipe_directory)}],
            "mps": {"control_program": str(inside.control_program)},
            "gpu": {"nvidia_smi": str(inside.nvidia_smi)},
            "outside": Path(outside.pipe_directory),
        }


def parts_for(settings: dict[str, Any], options: argparse.Namespace) -> Parts:
    configuration = {name: value for name, value in settings.items() if name != "outside"}
    configuration["archive"] = {"directory": str(options.output / "archive")}
    configuration["sweep"] = {
        "settle": 0,
        "stack_uid": os.geteuid(),
        "caps": options.caps,
        "client": {"python": sys.executable},
    }
    configuration["interference"] = {"deadline": options.seconds or SECONDS["matrix"]}
    if options.rehearse:
        configuration["sweep"] |= {"size": 96, "iters": 12}
        configuration["interference"] |= {"caps": [50, 100], "window": "100ms", "settle": "50ms"}
    path = options.work / "mpswatch.yml"
    path.write_text(json.dumps(configuration))
    return make_parts(load(path, {}), simulated=options.rehearse)


# --- repeatability


def repeatability(parts: Parts, findings: Findings, options: argparse.Namespace) -> None:
    """Thorough sweeps one after another; how much each figure varies from sweep to sweep."""
    end = time.monotonic() + (options.seconds or SECONDS["repeatability"])
    sweeps: list[SweepDocument] = []
    walls: list[float] = []
    while len(sweeps) < options.sweeps and time.monotonic() + max(walls, default=0.0) < end:
        began = time.monotonic()
        document = measured(parts, findings, options, "repeatability", interference=False)
        walls.append(time.monotonic() - began)
        if not isinstance(document, SweepDocument):
            break
        sweeps.append(document)
        shown = " ".join(
            f"{cell.cap}:{_shown(cell.burst)}/{_shown(cell.sustained)}({len(cell.repeats)})" for cell in document.cells
        )
        say(f"sweep {len(sweeps)} in {walls[-1]:.1f} s: {shown}")
        findings.put("repeatability", spread_of(sweeps, walls))
    if len(sweeps) < options.sweeps:
        findings.did_not_run(f"repeatability: {len(sweeps)} of {options.sweeps} sweeps")
    if len(sweeps) > 1:
        for cap, found in spread_of(sweeps, walls)["caps"].items():
            for name, goal in (("burst", BURST_GOAL), ("sustained", SUSTAINED_GOAL)):
                varies = found[name]["cv"] if found[name] else None
                if varies is None or varies > goal:
                    findings.missed(f"{name} at {cap} %: variation {varies} over {len(sweeps)} sweeps, goal {goal}")


def _shown(figure: Any) -> str:
    return "?" if figure is None else f"{figure.tflops:.4g}"


def spread_of(sweeps: list[SweepDocument], walls: list[float]) -> dict[str, Any]:
    """By cap and figure: medians, coefficient of variation, and the clocks and power that go with them."""
    caps: dict[str, Any] = {}
    for cap in [cell.cap for cell in sweeps[0].cells]:
        cells = [cell for sweep in sweeps for cell in sweep.cells if cell.cap == cap]
        caps[cap] = {
            name: _varies([figure for cell in cells if (figure := getattr(cell, name)) is not None])
            for name in ("burst", "sustained")
        }
        caps[cap]["verdicts"] = sorted({cell.verdict.verdict for cell in cells if cell.verdict is not None})
        caps[cap]["sm_counts"] = sorted({cell.sm_count for cell in cells if cell.sm_count is not None})
        caps[cap]["longest_unwatched"] = max(
            (each.longest_unwatched or 0 for cell in cells for each in cell.repeats), default=None
        )
        caps[cap]["quick_figure_in_each"] = [round(cell.tflops, 2) for cell in cells if cell.tflops is not None]
    return {"sweeps": len(sweeps), "wall_seconds": [round(wall, 1) for wall in walls], "caps": caps}


def _varies(figures: list[Any]) -> dict[str, Any] | None:
    if not figures:
        return None
    medians = [figure.tflops for figure in figures]
    looks = [figure.conditions_during for figure in figures if figure.conditions_during is not None]
    clocks = [look.sm_clock_mhz for look in looks if look.sm_clock_mhz is not None]
    power = [look.power_watts for look in looks if look.power_watts is not None]
    return {
        "tflops": [round(number, 2) for number in medians],
        "median": round(statistics.median(medians), 2),
        "cv": round(coefficient_of_variation(medians), 5),
        "largest_spread": round((max(medians) - min(medians)) / statistics.median(medians), 5),
        "interval_widths": [
            round((figure.interval_high - figure.interval_low) / figure.tflops, 5)
            for figure in figures
            if figure.interval_low is not None and figure.interval_high is not None
        ],
        "between_repeats": [round(figure.between_repeats, 5) for figure in figures],
        "counts": [figure.count for figure in figures],
        "settled": [figure.settled for figure in figures],
        "sm_clock_mhz": [min(clocks), statistics.median(clocks), max(clocks)] if clocks else None,
        "power_watts": [min(power), statistics.median(power), max(power)] if power else None,
        "throttle_reasons": sorted({reason for look in looks for reason in look.throttle_reasons or ()}),
    }


# --- the same matmul outside MPS


def outside(
    parts: Parts, findings: Findings, options: argparse.Namespace, elsewhere: Path, inside_directory: Path
) -> None:
    """Two launchers, one under the daemon and one where there is none; cells at 100 % in turn."""
    end = time.monotonic() + (options.seconds or SECONDS["outside"])
    uuid = gpu_of(parts)
    runtime = ProcessRuntime(
        python=sys.executable,
        client=client_zipapp(options.work),
        backend="numpy" if options.rehearse else "torch",
    )
    passes: dict[str, list[float]] = {"inside": [], "outside": []}
    loads: dict[str, list[float]] = {"inside": [], "outside": []}
    listed: dict[str, list[int]] = {"inside": [], "outside": []}
    with contextlib.ExitStack() as stack:
        talks: dict[str, Conversation] = {}
        for name, directory in (("inside", inside_directory), ("outside", elsewhere)):
            log = stack.enter_context(LauncherLog())
            launched = runtime.start(pipe_directory=directory, gpu_uuid=uuid, log_fd=log.fd)
            stack.callback(launched.close)
            talks[name] = Conversation(launched, Stop())
        for name, talk in talks.items():
            ready = talk.hear(until=time.monotonic() + 90)
            if not isinstance(ready, Ready):
                findings.did_not_run(f"outside: the launcher {name} said {ready}")
                return
        slowest = 0.0
        for number in range(options.alternations):
            if time.monotonic() + slowest > end:
                break
            began = time.monotonic()
            for name in ("inside", "outside") if number % 2 == 0 else ("outside", "inside"):
                result = one_cell(talks[name], number + 1, options, listed[name], parts)
                if not isinstance(result, Result):
                    findings.did_not_run(f"outside: cell {number + 1} {name}: {result}")
                    return
                passes[name] += result.passes
                loads[name] += result.sustained.samples if result.sustained is not None else ()
            slowest = max(slowest, time.monotonic() - began)
            findings.put("outside", compared(passes, loads, listed, options))
        for talk in talks.values():
            talk.say({"end": True})
            talk.launched.hang_up()
        until = time.monotonic() + 10  # the next part's preflight would find the lock
        while any(talk.launched.exited() is None for talk in talks.values()) and time.monotonic() < until:
            time.sleep(0.02)
    found = compared(passes, loads, listed, options)
    say("outside:", json.dumps({name: found[name] for name in ("burst", "sustained", "clients_on_the_list")}))
    findings.put("outside", found)
    if found["burst"] is None or abs(found["burst"]["inside_over_outside"] - 1) > OUTSIDE_GOAL:
        findings.missed(f"outside: inside over outside is {found['burst']}, goal within {OUTSIDE_GOAL}")
    if not options.rehearse and (set(listed["inside"]) != {1} or set(listed["outside"]) != {0}):
        findings.missed(f"outside: clients on the list were {listed}")


def one_cell(
    talk: Conversation, order: int, options: argparse.Namespace, listed: list[int], parts: Parts
) -> Result | str:
    size, iters = (96, 12) if options.rehearse else (4096, 80)
    sustained = {"seconds": 0.3, "settle_least": 0.5, "settle_most": 0.8}
    talk.say(
        {
            "cell": {"order": order, "cap": "100", "size": size, "iters": iters, "dtype": "fp16", "seed": 7}
            | {"deadline": 30.0, "warm_up": 3, "samples": 0, "passes": 3, "rest": 0.15, "sustained": sustained}
        }
    )
    until = time.monotonic() + 40
    found: Result | str = "no result"
    while True:
        heard = talk.hear(until=until)
        if isinstance(heard, Attached):
            look = parts.poller.look_at_daemon("private")
            listed.append(sum(len(server.clients or ()) for server in look.servers.value or ()))
            talk.say({"go": True})
        elif isinstance(heard, Result):
            found = heard
            talk.say({"bye": True})
        elif isinstance(heard, Gone):
            return found
        elif type(heard).__name__ not in {"Forked"}:
            return f"heard {heard}"


def compared(
    passes: dict[str, list[float]],
    loads: dict[str, list[float]],
    listed: dict[str, list[int]],
    options: argparse.Namespace,
) -> dict[str, Any]:
    size, iters = (96, 12) if options.rehearse else (4096, 80)
    flops = 2 * size**3 / 1e12

    def both(seconds: dict[str, list[float]], iterations: int) -> dict[str, Any] | None:
        if not all(seconds.values()):
            return None
        rates = {name: [flops * iterations / each for each in some] for name, some in seconds.items()}
        medians = {name: statistics.median(some) for name, some in rates.items()}
        around = {name: median_interval(some) for name, some in rates.items()}
        return {
            **{name: round(median, 2) for name, median in medians.items()},
            **{
                f"{name}_interval": None if found is None else [round(found.low, 2), round(found.high, 2)]
                for name, found in around.items()
            },
            "inside_over_outside": round(medians["inside"] / medians["outside"], 5),
            "samples": {name: len(some) for name, some in rates.items()},
        }

    return {
        "burst": both(passes, iters),
        "sustained": both(loads, 1),
        "clients_on_the_list": listed,
        "alternations": len(listed["outside"]),
    }


# --- the matrix


def matrix(parts: Parts, findings: Findings, options: argparse.Namespace) -> None:
    """The interference matrix once; partial where its time is over."""
    began = time.monotonic()
    document = measured(parts, findings, options, "matrix", interference=True)
    if not isinstance(document, InterferenceDocument):
        return
    rows = [
        {
            "victim": f"{cell.victim_kind} {cell.victim_cap}",
            "aggressor": None if cell.aggressor_cap is None else f"{cell.aggressor_kind} {cell.aggressor_cap}",
            "rate": None if cell.victim is None else round(cell.victim.value, 2),
            "unit": None if cell.victim is None else cell.victim.unit,
            "slowdown": _rounded(cell.slowdown),
            "interval": [_rounded(cell.slowdown_low), _rounded(cell.slowdown_high)],
            "aggressor_rate": None if cell.aggressor is None else round(cell.aggressor.value, 2),
            "sm_clock_mhz": cell.conditions_during.sm_clock_mhz if cell.conditions_during else None,
            "longest_unwatched": cell.longest_unwatched,
            "reason": cell.unknown_reason,
            "failure": cell.failure,
        }
        for cell in (*document.solo, *document.pairs)
    ]
    for row in rows:
        say(row["victim"], "beside", row["aggressor"], row["rate"], row["unit"], "slowdown", row["slowdown"])
    pairs = len(document.pairs)
    findings.put(
        "matrix", {"wall_seconds": round(time.monotonic() - began, 1), "pairs": pairs, "of": pairs, "cells": rows}
    )
    if not document.complete:
        findings.did_not_run(f"matrix: {document.partial_run_note}")


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


# --- what the parts share


def gpu_of(parts: Parts) -> str:
    looks = parts.poller.look().gpus.value
    if not looks:
        raise SystemExit("no GPU is seen: NVML and nvidia-smi say nothing")
    return looks[0].gpu.uuid


def measured(
    parts: Parts, findings: Findings, options: argparse.Namespace, part: str, *, interference: bool
) -> SweepDocument | InterferenceDocument | None:
    """One thorough sweep or one matrix; what kept it from running is said in full."""
    snapshot = parts.poller.look()
    swept = sweep_once(
        parts,
        snapshot,
        trigger="evidence",
        stop=Stop(),
        progress=lambda step: say("  ", step) if options.verbose else None,
        work_directory=options.work,
        plan="interference" if interference else "thorough",
        gpu=options.gpu,
        log=lambda event, **fields: say("  log", event, fields) if options.verbose else None,
    )
    for outcome in swept.outcomes:
        if isinstance(outcome, Event):
            findings.did_not_run(f"{part}: {outcome.kind} {outcome.reason}: {outcome.message} {outcome.details}")
        else:
            note = outcome.partial_run_note
            if note is not None:
                say("partial:", note)
            return outcome
    return None


def describe(parts: Parts, findings: Findings) -> None:
    snapshot = parts.poller.look()
    looks = snapshot.gpus.value or ()
    findings.put(
        "where",
        {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "python": sys.version.split()[0],
            "gpus": [json.loads(to_json(look.gpu)) for look in looks],
            "conditions": [json.loads(to_json(look.conditions)) for look in looks],
            "tenants": [f"{tenant.kind} {tenant.process_name}" for tenant in snapshot.tenants.value or ()],
        },
    )


def run_part(name: str, findings: Findings, what: Callable[[], None]) -> None:
    say(f"--- {name}")
    try:
        what()
    except Exception as error:  # noqa: BLE001 -- a part that fails must not take the others' time
        traceback.print_exc()
        findings.did_not_run(f"{name}: {type(error).__name__}: {error}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--part", choices=["all", "repeatability", "outside", "matrix"], default="all")
    parser.add_argument("--sweeps", type=int, default=10)
    parser.add_argument("--seconds", type=float, help="bound of the part (with --part all: each part's own)")
    parser.add_argument("--alternations", type=int, default=8)
    parser.add_argument("--caps", default="100,75,50,25,10")
    parser.add_argument("--gpu", help="the beginning of a GPU's UUID; default: the first")
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    if options.part == "all":
        options.seconds = None
    options.output = options.output.resolve()
    options.output.mkdir(parents=True, exist_ok=True)
    options.work = Path(tempfile.mkdtemp(prefix="mpswatch-evidence-"))
    findings = Findings(options.output)
    try:
        stack = rehearsed_stack(options.work) if options.rehearse else real_stack(options.work, options.output)
        with stack as settings:
            parts = parts_for(settings, options)
            describe(parts, findings)
            options.gpu = options.gpu or gpu_of(parts)
            inside = Path(settings["daemons"][0]["pipe_directory"])
            chosen = ("outside", "repeatability", "matrix") if options.part == "all" else (options.part,)
            for name in chosen:
                what = {
                    "outside": lambda: outside(parts, findings, options, settings["outside"], inside),
                    "repeatability": lambda: repeatability(parts, findings, options),
                    "matrix": lambda: matrix(parts, findings, options),
                }[name]
                run_part(name, findings, what)
    finally:
        shutil.rmtree(options.work, ignore_errors=True)
    say("goals missed:", len(findings.found["goals_missed"]), "did not run:", len(findings.found["not_run"]))
    if findings.found["not_run"]:
        return 2
    return 1 if findings.found["goals_missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
