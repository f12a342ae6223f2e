"""How long a neighbour is exposed to us: the time with work in flight that nobody watches, and its share of a day.

    python3 tests/gpu/exposure.py --output exposure.json [--cells 6] [--only alone]
    python3 tests/gpu/exposure.py table exposure.json

One stack only, since stacks side by side queue behind each other: first without a neighbour, then beside busy ones.
Each time whole cells through one launcher, and one whole `mpswatch sweep` with the default caps.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import results
import ways
from programs import RealGround, Sweeping
from stacks import NEIGHBOURS, driver, missing
from survival import Tally, expose, retire

DAY = 86400.0
DEFAULT_INTERVAL = 3600.0
UNWATCHED_MOST = 0.020
"""Seconds that work may be in flight between two looks, or one kernel where that takes longer."""

PLACES = ("alone", "beside")


def cells(ground: RealGround, number: int) -> list[dict]:
    """Exposure by cap over `number` whole cells of each."""
    tally, rng = Tally(None, driver(), 1), random.Random(1)
    talk = ground.warm_launcher()
    for _ in range(number):
        for cap in ways.CAPS:
            ways.normal_end(ground, talk, rng, cap=cap)
            expose(tally, talk)
    retire(ground, talk)
    return tally.exposures()


def sweep(ground: RealGround, folder: Path) -> dict[str, Any]:
    """One whole sweep from the command line with the default caps: its length, and how much of it was in flight."""
    folder.mkdir()
    with contextlib.closing(
        Sweeping(ground, folder, "sweep", caps=[100, 75, 50, 25, 10], iters=80, cell_deadline=30)
    ) as program:
        code = program.ended(within=120)
        program.nothing_remains()
        (run,) = program.runs() or [{}]
    if not run or code != 0:
        return {"exit": code, "said": program.said()[-2000:]}
    timings = [cell["timings"] for cell in run["cells"]]
    lasted = datetime.fromisoformat(run["finished_at"]) - datetime.fromisoformat(run["started_at"])
    return {
        "exit": code,
        "sweep": round(lasted.total_seconds(), 3),
        "connected": round(sum(each["attached_to_gone"] for each in timings), 3),
        "busy": round(sum(each["busy"] for each in timings), 4),
        "longest_unwatched": {cell["cap"]: cell["pieces"]["longest_unwatched"] for cell in run["cells"]},
        "tflops": {cell["cap"]: round(cell["tflops"], 1) for cell in run["cells"]},
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"date": datetime.now(UTC).date().isoformat()}
    with tempfile.TemporaryDirectory(prefix="mpsw-") as folder, RealGround(Path(folder), 0, ()) as ground:
        found["driver"] = driver()
        for name in PLACES:
            if name == "beside":
                ground.add_neighbours(NEIGHBOURS)
            if options.only not in (None, name):
                continue
            found[name] = {"cells": cells(ground, options.cells), "sweep": sweep(ground, Path(folder) / name)}
            found[name]["dead"] = ground.dead()
            print(name + "\n" + table(found, name), flush=True)
            options.output.write_text(json.dumps(found, indent=1) + "\n")
    return found


def table(found: dict[str, Any], name: str) -> str:
    """Markdown: exposure by cap, and what it comes to over a sweep and a day."""
    text, whole = results.exposure_table(found[name]["cells"]), found[name]["sweep"]
    if "busy" not in whole:
        return f"{text}\nthe sweep ended otherwise: {whole}\n"
    day = DAY / DEFAULT_INTERVAL * whole["busy"]
    return (
        f"{text}\nA sweep of five caps took {whole['sweep']:.2f} s, with a client on the server for"
        f" {whole['connected']:.2f} s and work in flight for {whole['busy'] * 1000:.0f} ms"
        f" ({whole['busy'] / whole['sweep']:.1%} of it); one an hour: {day:.1f} s a day ({day / DAY:.4%}).\n"
    )


def main() -> int:
    if sys.argv[1:2] == ["table"]:
        found = json.loads(Path(sys.argv[2]).read_text())
        for name in filter(found.get, PLACES):
            print(f"### {name}\n\n{table(found, name)}")
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=6, help="whole cells of each cap")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--only", choices=PLACES)
    options = parser.parse_args()
    if lacks := missing():
        print("exposure cannot be measured:\n  " + "\n  ".join(lacks), file=sys.stderr)
        return 2
    found = measure(options)
    measured = [found[name] for name in filter(found.get, PLACES)]
    over = [
        row
        for each in measured
        for row in each["cells"]
        if row["longest_unwatched_most"] > max(UNWATCHED_MOST, 1.5 * row["kernel_median"])
    ]
    for row in over:
        print(f"FAIL  too long unwatched: {row}")
    return 0 if not over and all(each["sweep"]["exit"] == 0 and not each["dead"] for each in measured) else 1


if __name__ == "__main__":
    sys.exit(main())
