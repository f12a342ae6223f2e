"""Two runs side by side, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from mpswatch.cli.show import console
from mpswatch.cli.tables import narrow, print_whole
from mpswatch.evidence.quantities import WORDS
from mpswatch.history import Amount, CapChange, Comparison, Difference


def print_comparison(found: Comparison, first: str, second: str, *, simulated: bool) -> None:
    """`simulated`: at least one of the two comes from a rehearsal stack."""
    out = console()
    if simulated:
        out.print(Text("SIMULATED (rehearsal stack, no GPU was measured)"))
    if found.not_comparable:
        said = "These runs are no two of one series: no ratio is formed. They differ in"
        out.print(Text(said, style="red"))
        print_whole(_differences(found.not_comparable, first, second), out)
    if found.circumstances:
        out.print(Text("What is otherwise:"))
        print_whole(_differences(found.circumstances, first, second), out)
    else:
        out.print(Text("Tenants, driver, server, versions and environment are the same."))
    table = narrow()
    for heading in ("cap", "TFLOPS"):
        table.add_column(heading, justify="right" if heading == "cap" else "left", no_wrap=True)
    for heading in (first, second):
        table.add_column(heading)
    table.add_column("change", justify="right", no_wrap=True)
    table.add_column("intervals apart")
    for change in found.caps:
        table.add_row(*(Text(text) for text in _row(change)))
    print_whole(table, out)
    for change in found.caps:
        if change.conditions:
            said = "; ".join(f"{one.what} {one.first} → {one.second}" for one in change.conditions)
            out.print(Text(f"{change.cap} %: {said}"), soft_wrap=True)


def _row(change: CapChange) -> Sequence[str]:
    apart = {True: "yes", False: "no", None: ""}[change.apart]
    ratio = "" if change.ratio is None else f"{change.ratio:+.1%}"
    return change.cap, WORDS[change.quantity], _amount(change.first), _amount(change.second), ratio, apart


def _amount(amount: Amount | str) -> str:
    if isinstance(amount, str):
        return amount
    interval = f" ({amount.low:.4g} to {amount.high:.4g})" if amount.low is not None and amount.high is not None else ""
    return f"{amount.tflops:.4g}{interval}{at(amount)}"


def at(amount: Amount) -> str:
    """Say under which clock and power a figure was reached, where that is known."""
    clock = f"{amount.sm_clock_mhz:.0f} MHz" if amount.sm_clock_mhz is not None else ""
    power = f"{amount.power_watts:.0f} W" if amount.power_watts is not None else ""
    said = ", ".join(word for word in (clock, power) if word)
    return f" at {said}" if said else ""


def _differences(found: Sequence[Difference], first: str, second: str) -> Table:
    table = narrow()
    for heading in ("what", first, second):
        table.add_column(heading)
    for one in found:
        table.add_row(Text(one.what), Text(one.first), Text(one.second))
    return table
