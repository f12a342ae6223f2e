"""The survival results: rows of {way, harness, trials, neighbours_dead, date, driver}, added up and printed.

`neighbours_dead` counts trials in which at least one neighbour died.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path

HARNESSES = ("mpswatch", "known_unsafe", "naive")


def write(path: Path, rows: list[dict]) -> None:
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(json.dumps(rows, indent=1) + "\n")
    temporary.replace(path)


def add(new: Path, to: Path) -> None:
    """Append the rows of one run to those of earlier ones."""
    rows = json.loads(to.read_text()) if to.exists() else []
    to.parent.mkdir(parents=True, exist_ok=True)
    write(to, rows + json.loads(new.read_text()))


def upper_bound(deaths: int, trials: int, confidence: float = 0.95) -> float:
    """The one-sided upper bound of the share of deaths (Clopper-Pearson): 0 of 15 still allows 0.18."""
    if deaths >= trials:
        return 1.0
    low, high = deaths / trials, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        at_most = sum(math.comb(trials, k) * middle**k * (1 - middle) ** (trials - k) for k in range(deaths + 1))
        low, high = (middle, high) if at_most > 1 - confidence else (low, middle)
    return high


def table(rows: list[dict]) -> str:
    """Markdown, a table for each harness: the trials of all runs added up, by way."""
    summed: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        both = summed[row["harness"], row["way"]]
        both[0] += row["trials"]
        both[1] += row["neighbours_dead"]
    tables = []
    for harness in HARNESSES:
        ways = [(way, *both) for (one, way), both in summed.items() if one == harness and both[0]]
        if harness == "mpswatch" and ways:
            ways.append(("**all of these**", sum(way[1] for way in ways), sum(way[2] for way in ways)))
        if ways:
            lines = [
                "| how the client ended | harness | trials | with a dead neighbour | 95 % upper bound |",
                "| --- | --- | ---: | ---: | ---: |",
            ]
            lines += [f"| {way} | {harness} | {n} | {dead} | {upper_bound(dead, n):.1%} |" for way, n, dead in ways]
            tables.append("\n".join(lines) + "\n")
    return "\n".join(tables)


def exposure_table(rows: list[dict]) -> str:
    """Markdown: the time in flight that nobody watches, by cap (milliseconds)."""
    lines = [
        "| cap | cells | longest unwatched, most | median | one kernel | in flight a cell | a cell |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    keys = ("longest_unwatched_most", "longest_unwatched_median", "kernel_median", "busy_median", "cell_median")
    for row in rows:
        figures = " | ".join(f"{row[key] * 1000:.2f} ms" for key in keys)
        lines.append(f"| {row['cap']} | {row['cells']} | {figures} |")
    return "\n".join(lines) + "\n"
