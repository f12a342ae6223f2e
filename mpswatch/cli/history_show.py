"""Histories as tables and as pictures of braille dots; rich only."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
from rich.table import Table
from rich.text import Text

from mpswatch.cli.compare_show import at
from mpswatch.cli.show import console
from mpswatch.cli.tables import narrow, print_whole
from mpswatch.documents import CapStanding, Quantity
from mpswatch.evidence.quantities import WORDS
from mpswatch.history import LOOK_BACK, Amount, RunFacts, Series, judge, judge_all

MOST = 2000
"""So many runs of a series are drawn at most, the newest; --since chooses others."""
LEAST = 3
"""So many numbers make a picture: one or two say no more than the table does."""
WIDTH, HEIGHT = 72, 8
STYLES = {"below": "red", "slower_once": "yellow", "explained": "yellow", "above": "cyan", "unknown": "dim"}


def building(done: int, of: int) -> None:
    """Say on a terminal that the index is being built, where that takes a while."""
    if of > 200 and sys.stderr.isatty():
        click.echo(f"\rreading {done} of {of} runs for the index", err=True, nl=done == of)


def print_series(series: Series, runs: Sequence[RunFacts], *, cap: str | None, limit: int) -> None:
    """A table a quantity of the newest runs, then how each cap stands, with a picture where there is a way to see."""
    out = console()
    out.print(Text(series.title, style="bold"), soft_wrap=True)
    # those of the newest run first, then those that only earlier ones have: a cap that is gone is shown to be
    caps = [
        one for one in dict.fromkeys(facts.cap for run in reversed(runs) for facts in run.caps) if cap in (None, one)
    ]
    if not caps:
        out.print(Text("no run has such a cap" if runs else "no run in this time"))
        return
    quantities = runs[-1].quantities
    for quantity in quantities:
        out.print(Text(f"{WORDS[quantity]} TFLOPS, newest last"))
        print_whole(_table(runs, caps, quantity, limit), out)
        out.print()
    for one in caps:
        for quantity in quantities:
            _print_picture(runs, one, quantity)
    out.print()


def _table(runs: Sequence[RunFacts], caps: Sequence[str], quantity: Quantity, limit: int) -> Table:
    table = narrow()
    table.add_column("run", no_wrap=True)
    for one in caps:
        table.add_column(f"{one} %", justify="right")
    table.add_column("outcome, and beside it")
    for place in range(max(0, len(runs) - limit), len(runs)):
        table.add_row(*_row(runs, place, caps, quantity))
    return table


def _row(runs: Sequence[RunFacts], place: int, caps: Sequence[str], quantity: Quantity) -> list[Text]:
    run = runs[place]
    before = runs[max(0, place - LOOK_BACK) : place + 1]
    cells = []
    for cap in caps:
        facts, amount = run.of(cap), _amount(run, cap, quantity)
        if amount is None:
            reason = (facts.reason or "not_recorded") if facts is not None else "not in this run"
            cells.append(Text(reason, style="red"))
            continue
        found = judge(before, cap, quantity)
        mark = {"below": "▼", "slower_once": "▽", "above": "▲", "explained": "≈"}.get(found.standing, "")
        cells.append(Text(f"{amount.tflops:.4g}{mark}", style=STYLES.get(found.standing, "")))
    foreign = run.caps[0].foreign if run.caps else None
    names = "unknown" if foreign is None else f"{len(foreign)} foreign" + (f": {', '.join(foreign)}" if foreign else "")
    managed = "unknown" if run.managed is None else str(run.managed)
    beside = Text(f"{run.outcome}, {managed} managed, {names}"[:90])
    return [Text(run.run_id or f"{run.started:%Y-%m-%d %H:%M:%S}"), *cells, beside]


def _print_picture(runs: Sequence[RunFacts], cap: str, quantity: Quantity) -> None:
    out = console()
    values = [amount.tflops if (amount := _amount(run, cap, quantity)) else None for run in runs]
    known = [value for value in values if value is not None]
    if not known:
        return
    found = judge(runs[-LOOK_BACK - 1 :], cap, quantity)
    newest = _amount(runs[-1], cap, quantity)
    line = f"{cap} % {WORDS[quantity]}: {said(found, at(newest) if newest is not None else '')}"
    out.print(Text(line, style=STYLES.get(found.standing, "")), soft_wrap=True)
    if len(known) < LEAST:
        return
    low, high = min(known), max(known)
    for number, line in enumerate(braille(values, low, high)):
        edge = f"{high:10.4g}" if number == 0 else f"{low:10.4g}" if number == HEIGHT - 1 else " " * 10
        out.print(Text(f"{edge} ┤{line}"), soft_wrap=True)
    out.print(Text(f"{'':10} └{runs[0].started:%Y-%m-%d %H:%M} to {runs[-1].started:%Y-%m-%d %H:%M}, {len(runs)} runs"))


def said(found: CapStanding, under: str = "") -> str:
    """One standing as a sentence's rest; `under` says under which clock and power it was reached."""
    if found.standing == "unknown":
        number = "" if found.tflops is None else f"{found.tflops:.4g} TFLOPS{under}, "
        return f"{number}standing unknown ({found.unknown_reason}, {found.runs} earlier runs)"
    by = f" by {'; '.join(found.explained_by)}" if found.explained_by else ""
    band = f"usually {found.median:.4g} ({found.low:.4g} to {found.high:.4g}, {found.runs} runs)"
    return f"{found.tflops:.4g} TFLOPS{under}, {found.standing.replace('_', ' ')}{by}; {band}"


def braille(values: Sequence[float | None], low: float, high: float) -> list[str]:
    """A picture of `WIDTH` x `HEIGHT` characters, each of 2 x 4 dots; what has no number leaves a gap."""
    dots = [[0] * WIDTH for _ in range(HEIGHT)]
    columns, rows = WIDTH * 2, HEIGHT * 4
    for place, value in enumerate(values):
        if value is None:
            continue
        x = place * (columns - 1) // max(1, len(values) - 1) if len(values) > 1 else 0
        y = round((high - value) / (high - low) * (rows - 1)) if high > low else rows // 2
        dots[y // 4][x // 2] |= ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))[x % 2][y % 4]
    return ["".join(chr(0x2800 + dot) for dot in line) for line in dots]


def plain(series: Series, runs: Sequence[RunFacts], cap: str | None) -> dict[str, object]:
    """A history for programs: the series' key, every run's numbers, and how the newest stands."""
    standings = judge_all(runs[-LOOK_BACK - 1 :]) if runs else ()
    return {
        "series": series._asdict(),
        "runs": [
            {
                "run_id": run.run_id,
                "started_at": run.started.isoformat(),
                "outcome": run.outcome,
                "managed_clients": run.managed,
                "caps": {
                    facts.cap: {
                        "tflops": facts.tflops,
                        "unknown_reason": facts.reason,
                        "burst_tflops": facts.burst.tflops if facts.burst else None,
                        "sustained_tflops": facts.sustained.tflops if facts.sustained else None,
                        "conditions": {
                            quantity: {"sm_clock_mhz": amount.sm_clock_mhz, "power_watts": amount.power_watts}
                            for quantity in run.quantities
                            if (amount := facts.amount(quantity)) is not None
                        },
                        "verdict": facts.verdict,
                        "foreign": facts.foreign,
                    }
                    for facts in run.caps
                    if cap is None or facts.cap == cap
                },
            }
            for run in runs
        ],
        "standing": [
            {field: getattr(found, field) for field in CapStanding.__struct_fields__}
            for found in standings
            if cap is None or found.cap == cap
        ],
    }


def _amount(run: RunFacts, cap: str, quantity: Quantity) -> Amount | None:
    facts = run.of(cap)
    return facts.amount(quantity) if facts is not None else None
