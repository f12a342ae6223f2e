"""The GPU suite: `make gpu-test ARGS='…'`, or `python3 tests/gpu/run.py …` with the interpreter that has torch.

    run.py [--output DIR]         all of it in less than 8 minutes: a sweep beside a neighbour, refusals, raw replies,
                                  every way that ends client, launcher, a pair or mpswatch, and the exposure
    run.py --only NAME…           some parts of it
    run.py NAME [options]         one of its programs by itself (NAME --help): smoke, identity, replies, survival,
                                  daemon_ways, exposure, two_gpus (needs two); the long forms are
                                  survival --seconds 3000 --stacks 4 --output FILE, and the same of daemon_ways

It installs nothing, and it refuses on a GPU that has any other process, because it starts neighbours that may die.
DIR (build/gpu-test) has each part's output and results as they come, `run.json` says how each part ended, and
`survival.json` is what `survival.py add` takes. Nothing stops at the first failure. Exit code 1 where a part failed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

# Import name -> the wheel that brings it.
NEEDED = {
    "torch": "torch",
    "numpy": "numpy",
    "msgspec": "msgspec",
    "apscheduler": "apscheduler",
    "tzlocal": "tzlocal",
    "bcrypt": "bcrypt",
    "click": "click",
    "h11": "h11",
    "pynvml": "nvidia-ml-py",
    "prometheus_client": "prometheus-client",
    "yaml": "PyYAML",
    "rich": "rich",
    "starlette": "starlette",
    "structlog": "structlog",
    "uvicorn": "uvicorn",
}
PROGRAMS = ("smoke", "identity", "replies", "survival", "daemon_ways", "exposure", "two_gpus")
GRACE = 40.0
"""Seconds that a part may take beyond its share: a trial under way when its time is up."""

FREE_WITHIN = 20.0
TELLING = ("FAIL", "SPOILT", "DIED", "spoilt,", "no trial", "Traceback", "Error:", "cannot", " checks ", "harness mpsw")


@dataclass(frozen=True)
class Part:
    """One program of the suite and its share (s) of the time; `timed`: it takes --seconds itself."""

    name: str
    program: str
    seconds: float
    arguments: tuple[str, ...]
    timed: bool = False
    rehearsed: bool = True


def parts(output: Path, trials: int) -> tuple[Part, ...]:
    """In this order: what is quick and tells most comes first, and the last takes what is left."""

    def file(name: str) -> tuple[str, str]:
        return "--output", str(output / f"{name}.json")

    many = ("--stacks", "4", "--trials", str(trials))
    few = ("--stacks", "4", "--trials", str(min(trials, 2)))
    stopped = "for 10 s"
    return (
        Part("smoke", "smoke", 40, ("--no-ways", *file("smoke"))),
        Part("refusals", "identity", 60,
             (str(output / "identity"), "--only", "changed", "replaced", "full", "wrong_uid")),
        Part("replies", "replies", 40, (*file("replies"), "--seconds", "8"), rehearsed=False),
        Part("survival", "survival", 225,
             (*many, "--known-unsafe", "--unsafe-seconds", "20", *file("survival-client")), timed=True),
        Part("stopped", "daemon_ways", 90, (*many, "--only", stopped, *file("survival-stopped")), timed=True),
        Part("exposure", "exposure", 45, ("--cells", "3", *file("exposure")), rehearsed=False),
        Part("daemon", "daemon_ways", 90, (*few, "--but", stopped, *file("survival-daemon")), timed=True),
    )  # fmt: skip


def absent(names: dict[str, str]) -> list[str]:
    return [wheel for name, wheel in names.items() if importlib.util.find_spec(name) is None]


def run_part(part: Part, share: float, output: Path, *, rehearsal: bool) -> dict[str, Any]:
    """Run it for its share of the time, its output into a file; what is kept of it in run.json."""
    argv = [sys.executable, str(HERE / f"{part.program}.py"), *part.arguments]
    argv += ["--seconds", f"{share:g}"] if part.timed else []
    argv += ["--rehearsal"] if rehearsal and part.rehearsed else []
    began, log = time.monotonic(), output / f"{part.name}.txt"
    with log.open("wb") as out:
        program = subprocess.Popen(
            argv, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
        try:
            code: int | None = program.wait(share + GRACE)
        except subprocess.TimeoutExpired:
            code = None
            program.terminate()
    told = [
        line[:240] for line in log.read_text(errors="replace").splitlines() if any(word in line for word in TELLING)
    ]
    return {"part": part.name, "exit": code, "seconds": round(time.monotonic() - began, 1), "told": told[-40:]}


def collect(output: Path) -> list[dict[str, Any]]:
    """All survival rows of the parts so far, into one file."""
    import results

    rows = [row for path in sorted(output.glob("survival-*.json")) for row in json.loads(path.read_text())
            if isinstance(row, dict) and "neighbours_dead" in row]  # fmt: skip
    results.write(output / "survival.json", rows)
    return rows


def wait_for_the_gpu() -> None:
    """Until the part before has left it: the driver takes a moment."""
    from stacks import missing

    until = time.monotonic() + FREE_WITHIN
    while missing() and time.monotonic() < until:
        time.sleep(0.5)


def whole(options: argparse.Namespace) -> int:
    """Every part in turn, within the time."""
    import results

    options.output.mkdir(parents=True, exist_ok=True)
    began, found = time.monotonic(), []
    for part in parts(options.output.resolve(), options.trials):
        if options.only and part.name not in options.only:
            continue
        if not options.rehearsal:
            wait_for_the_gpu()
        share = min(part.seconds, options.seconds - (time.monotonic() - began))
        if share < part.seconds / 3:
            found.append({"part": part.name, "exit": None, "seconds": 0.0, "told": ["no time was left for it"]})
        else:
            found.append(run_part(part, share, options.output, rehearsal=options.rehearsal))
        results.write(options.output / "run.json", found)
        rows = collect(options.output)
        ended = found[-1]
        print(f"== {ended['part']}: exit {ended['exit']} after {ended['seconds']} s", flush=True)
        print("".join(f"   {line}\n" for line in ended["told"][-12:]), end="", flush=True)
    print("\n" + results.table(rows))
    failed = [each["part"] for each in found if each["exit"] != 0]
    print(f"{time.monotonic() - began:.0f} s; " + (f"failed: {', '.join(failed)}" if failed else "all parts held"))
    return 1 if failed else 0


def main() -> int:
    arguments = sys.argv[1:]
    if arguments[:1] and arguments[0] in PROGRAMS:
        return subprocess.call([sys.executable, str(HERE / f"{arguments[0]}.py"), *arguments[1:]])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "gpu-test")
    parser.add_argument("--seconds", type=float, default=460, help="no part is begun that would go beyond")
    parser.add_argument("--trials", type=int, default=15, help="of each way that ends client, launcher or pair")
    parser.add_argument("--only", nargs="*", default=[], help="parts by name", metavar="NAME")
    parser.add_argument("--rehearsal", action="store_true", help="without a GPU, as far as the parts can")
    options = parser.parse_args(arguments)
    wheels = absent(NEEDED if not options.rehearsal else {})
    if wheels:
        print(
            f"this interpreter ({sys.executable}) lacks: {' '.join(wheels)}; nothing is installed here", file=sys.stderr
        )
        return 2
    if not options.rehearsal:
        from stacks import missing

        if lacks := missing():
            print("the GPU suite cannot run:\n  " + "\n  ".join(lacks), file=sys.stderr)
            return 2
    return whole(options)


if __name__ == "__main__":
    sys.exit(main())
