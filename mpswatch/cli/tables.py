"""Tables in which no number and no id is cut, on a terminal of 80 columns or in a pipe."""

from __future__ import annotations

from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

LONGEST_WORD = 24
"""Columns of text are folded between words; longer ones (paths, uuids) go on in the next line."""


def narrow() -> Table:
    """A table whose columns are one space apart."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, padding=0, pad_edge=False)


def print_whole(table: Table, out: Console) -> None:
    """Print a table made by `narrow`: a column with `no_wrap` is as wide as what is in it, the others share the rest.

    Where that does not fit the table is wider than the terminal, which goes on in the next line: nothing is left out.
    """
    room = out.width - len(table.columns) + 1
    folded = []
    for column in table.columns:
        texts = [_text(cell) for cell in (column.header, *column.cells)]
        longest = max(map(cell_len, texts))
        if column.no_wrap:
            column.width = longest
            room -= longest
        else:
            word = max((cell_len(word) for text in texts for word in text.split()), default=1)
            column.overflow = "fold"
            column.width = min(word, LONGEST_WORD)
            room -= column.width
            folded.append((longest - column.width, column))
    for place, (more, column) in enumerate(sorted(folded, key=lambda one: one[0])):
        share = max(0, min(more, room // (len(folded) - place)))
        column.width = (column.width or 0) + share
        room -= share
    table.width = sum(column.width or 0 for column in table.columns) + len(table.columns) - 1
    out.print(table, crop=False, no_wrap=False)


def _text(cell: RenderableType) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)
