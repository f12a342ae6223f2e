"""The interference matrix as tables and as a picture: how much of its rate alone a victim loses."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mpswatch.documents import InterferenceCell, InterferenceDocument

SHADES = (" ", "░", "▒", "▓", "█")
"""Of a fifth of the rate each."""


def print_interference(document: InterferenceDocument, out: Console) -> None:
    """What it is, then matmul by cap, kinds of work, and every cell with its interval."""
    kind = "SIMULATED (rehearsal stack, no GPU was measured)  " if document.simulated else ""
    gpu = document.gpu.name if document.gpu is not None else "GPU unknown"
    when = document.started_at.strftime("%Y-%m-%d %H:%M:%S UTC")
    protocol = document.protocol
    out.print(
        Text(
            f"{kind}{gpu} on {document.host}, {when}: slowdown beside a neighbour, {protocol.dtype} matmul"
            f" {protocol.size} and others, windows of {protocol.window_seconds:g} s"
        )
    )
    alike = [cell for cell in document.pairs if cell.victim_kind == cell.aggressor_kind == "matmul"]
    caps = sorted({cell.victim_cap for cell in alike}, key=float)
    loads = [(cap, "matmul") for cap in caps]
    _say("matmul beside matmul: share of its rate that the victim (row) loses", out)
    out.print(_grid(alike, loads, loads))
    mixed = [cell for cell in document.pairs if cell.victim_cap == cell.aggressor_cap]
    kinds = [(cell.victim_cap, cell.victim_kind) for cell in mixed if cell.victim_kind != "matmul"]
    if kinds:
        cap = kinds[0][0]
        work = list(dict.fromkeys([(cap, "matmul"), *kinds]))
        _say(f"kinds of work, {cap} % beside {cap} %: share of its rate that the victim (row) loses", out)
        out.print(_grid(mixed, work, work))
    _say("every cell", out)
    out.print(_list(document))
    if document.partial_run_note is not None:
        out.print(Text(f"partial: {document.partial_run_note}", style="yellow"))


def _say(heading: str, out: Console) -> None:
    """A line of its own: a table's title would wrap at the table's width."""
    out.print()
    out.print(Text(heading), soft_wrap=True)


def _grid(
    cells: Sequence[InterferenceCell],
    victims: Sequence[tuple[str, str]],
    aggressors: Sequence[tuple[str, str]],
) -> Table:
    table = Table()
    table.add_column("victim", justify="right")
    for cap, kind in aggressors:
        table.add_column(Text(f"{kind} {cap} %"), justify="right")
    found: dict[tuple[object, object], InterferenceCell] = {
        ((cell.victim_cap, cell.victim_kind), (cell.aggressor_cap, cell.aggressor_kind)): cell for cell in cells
    }
    for victim in victims:
        row = [Text(f"{victim[1]} {victim[0]} %")]
        row += [_square(found.get((victim, aggressor))) for aggressor in aggressors]
        table.add_row(*row)
    return table


def _square(cell: InterferenceCell | None) -> Text:
    if cell is None or cell.slowdown is None:
        return Text("?")
    shade = SHADES[min(len(SHADES) - 1, max(0, int(cell.slowdown * len(SHADES))))]
    return Text(f"{shade * 2} {cell.slowdown:.0%}")


def _list(document: InterferenceDocument) -> Table:
    table = Table()
    for heading in ("victim", "beside", "rate", "unit", "slowdown", "95 % interval", "state"):
        table.add_column(heading, justify="right" if heading in {"rate", "slowdown", "95 % interval"} else "left")
    for cell in (*document.solo, *document.pairs):
        beside = "the stack alone" if cell.aggressor_cap is None else f"{cell.aggressor_kind} {cell.aggressor_cap} %"
        state = cell.state if cell.unknown_reason is None else f"unknown: {cell.unknown_reason}"
        table.add_row(
            Text(f"{cell.victim_kind} {cell.victim_cap} %"),
            Text(beside),
            Text(f"{cell.victim.value:.4g}" if cell.victim is not None else "?"),
            Text(cell.victim.unit if cell.victim is not None else ""),
            Text(f"{cell.slowdown:.1%}" if cell.slowdown is not None else ""),
            Text(_interval(cell)),
            Text(state, style="red" if cell.state == "unknown" else ""),
        )
    return table


def _interval(cell: InterferenceCell) -> str:
    if cell.slowdown_low is None or cell.slowdown_high is None:
        return ""
    return f"{cell.slowdown_low:.1%} to {cell.slowdown_high:.1%}"
