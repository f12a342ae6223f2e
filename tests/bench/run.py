"""make bench: what mpswatch costs on a CPU, beside the floor of the same work; compared with the committed baseline.

usage: run.py [ITEM …] [--quick] [--instructions] [--output FILE] [--set-baseline]

Absolute figures are of this machine and hour. What is compared are ratios taken by turns in one run: one that lies
outside both its own spread and the baseline's, by more than a tenth, has moved. Exits 1 when one moved for the worse.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE)]

import items  # noqa: E402 -- the path above is for a plain interpreter
from measuring import machine  # noqa: E402

BASELINE = HERE / "baseline.json"
TENTH = 1.1


def chosen(options: argparse.Namespace) -> dict[str, Callable[[], items.Found]]:
    quick = options.quick
    every: dict[str, Callable[[], items.Found]] = {
        "poll": lambda: items.poll(20 if quick else 60, 200 if quick else 1000),
        "scrape": lambda: items.scrape(10 if quick else 30),
        "http": lambda: items.scrape_by_http(300 if quick else 1500),
        "start": lambda: items.start(3 if quick else 7, instructions=options.instructions),
        "memory": items.memory,
        "archive": lambda: items.archive(1000 if quick else 100_000),
        "control_log": items.control_log,
    }
    return {name: every[name] for name in options.items or every}


def moved(new: dict[str, dict[str, float]], old: dict[str, dict[str, float]]) -> list[str]:
    """What lies outside both spreads by more than a tenth, in words; the worse ones begin with `worse`."""
    found = []
    for name, now in new.items():
        if (before := old.get(name)) is None:
            continue
        if now["low"] > before["high"] and now["median"] > before["median"] * TENTH:
            found.append(f"worse: {name}: {before['median']} -> {now['median']}")
        elif now["high"] < before["low"] and now["median"] * TENTH < before["median"]:
            found.append(f"better: {name}: {before['median']} -> {now['median']}")
    return found


def shown(name: str, figures: dict[str, Any], depth: int = 0) -> None:
    print("  " * depth + name)
    for key, value in figures.items():
        if isinstance(value, dict) and not {"median", "low", "high"} <= value.keys():
            shown(str(key), value, depth + 1)
        elif isinstance(value, dict):
            print("  " * (depth + 1) + f"{key:38} {value['median']:>10}   ({value['low']} – {value['high']})")
        else:
            print("  " * (depth + 1) + f"{key:38} {value!s:>10}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("items", nargs="*")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, no 1,000 processes, no 100,000 runs")
    parser.add_argument("--instructions", action="store_true", help="count the import's instructions (a minute)")
    parser.add_argument("--output", type=Path, help="the figures as JSON")
    parser.add_argument("--set-baseline", action="store_true")
    options = parser.parse_args()
    found: dict[str, Any] = {"machine": machine(), "figures": {}, "ratios": {}}
    for name, item in chosen(options).items():
        began = time.monotonic()
        figures, ratios = item()
        found["figures"][name] = figures
        found["ratios"] |= ratios
        shown(f"{name} ({time.monotonic() - began:.1f} s)", figures)
        sys.stdout.flush()
    print("ratios, taken by turns")
    for name, value in found["ratios"].items():
        print(f"  {name:60} {value['median']:>8}   ({value['low']} – {value['high']})")
    if options.output:
        options.output.write_text(json.dumps(found, indent=1) + "\n")
    if options.set_baseline:
        before = json.loads(BASELINE.read_text())["ratios"] if BASELINE.is_file() else {}
        kept = {"machine": found["machine"], "ratios": {**before, **found["ratios"]}}
        BASELINE.write_text(json.dumps(kept, indent=1) + "\n")
        return 0
    old = json.loads(BASELINE.read_text())["ratios"] if BASELINE.is_file() else {}
    changes = moved(found["ratios"], old)
    print("\n".join(changes) if changes else "nothing moved beyond its spread and a tenth")
    return 1 if any(change.startswith("worse") for change in changes) else 0


if __name__ == "__main__":
    sys.exit(main())
