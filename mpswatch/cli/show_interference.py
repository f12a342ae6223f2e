"""The interference matrix as tables and as a picture: how much of its rate alone a victim loses."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mpswatch.cli.tables import narrow, print_whole
from mpswatch.documents import InterferenceCell, InterferenceDocument
from mpswatch.evidence.matrices import Matrix, Square, matrices, rate_in_words

SHADES = (" ", "░", "▒", "▓", "█")
"""Of a fifth of the rate each."""


def print_interference(document: InterferenceDocument, out: Console) -> None:
    """What it is, then its matrices, and every cell with its interval."""
    kind = "SIMULATED (rehearsal stack, no GPU was measured)  " if document.simulated else ""
    gpu = document.gpu.name if document.gpu is not None else "GPU unknown"
    when = document.started_at.strftime("%Y-%m-%d %H:%M:%S UTC")
    protocol = document.protocol
    out.print(
        Text(
            f"{kind}{gpu} on {document.host}, {when}: slowdown beside a neighbour under sustained load,"
            f" {protocol.dtype} matmul {protocol.size} and others, windows of {protocol.window_seconds:g} s"
        )
    )
    for matrix in matrices(document):
        _say(f"{matrix.title}: share of its rate that the victim (row) loses", out)
        print_whole(_grid(matrix), out)
    _say("every cell", out)
    print_whole(_list(document), out)
    if document.partial_run_note is not None:
        out.print(Text(f"partial: {document.partial_run_note}", style="yellow"))


def _say(heading: str, out: Console) -> None:
    """A line of its own: a table's title would wrap at the table's width."""
    out.print()
    out.print(Text(heading), soft_wrap=True)


def _grid(matrix: Matrix) -> Table:
    table = narrow()
    for heading in ("victim", "alone", *matrix.columns):
        table.add_column(Text(heading), justify="right")
    for row in matrix.rows:
        table.add_row(Text(row.name), Text(row.alone), *(_square(square) for square in row.squares))
    return table


def _square(square: Square) -> Text:
    if square.share is None:
        return Text("?" if square.reason is not None else "")
    shade = SHADES[min(len(SHADES) - 1, max(0, int(square.share * len(SHADES))))]
    return Text(f"{shade * 2} {square.share:.0%}")


def _list(document: InterferenceDocument) -> Table:
    table = narrow()
    numbers = {"rate", "slowdown", "95 % interval"}
    for heading in ("victim", "beside", "rate", "slowdown", "95 % interval", "state"):
        table.add_column(heading, justify="right" if heading in numbers else "left", no_wrap=heading in numbers)
    for cell in (*document.solo, *document.pairs):
        beside = "the stack alone" if cell.aggressor_cap is None else f"{cell.aggressor_kind} {cell.aggressor_cap} %"
        state = cell.state if cell.unknown_reason is None else f"unknown: {cell.unknown_reason}"
        table.add_row(
            Text(f"{cell.victim_kind} {cell.victim_cap} %"),
            Text(beside),
            Text(rate_in_words(cell.victim) if cell.victim is not None else "?"),
            Text(f"{cell.slowdown:.1%}" if cell.slowdown is not None else ""),
            Text(_interval(cell)),
            Text(state, style="red" if cell.state == "unknown" else ""),
        )
    return table


def _interval(cell: InterferenceCell) -> str:
    if cell.slowdown_low is None or cell.slowdown_high is None:
        return ""
    return f"{cell.slowdown_low:.1%} to {cell.slowdown_high:.1%}"
