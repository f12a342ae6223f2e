"""A matrix of losses as a table, whose squares are the darker the larger they are, and as a picture. Pure."""

from __future__ import annotations

from mpswatch.evidence.matrices import Matrix, Square
from mpswatch.markup.html import Markup, region, tag

OPACITIES = (0.0, 0.1, 0.18, 0.27, 0.36, 0.45)
"""Of the shades from 0 to 5, as the style sheet has them."""

ROW, COLUMN, SIDE, HEAD = 46.0, 92.0, 110.0, 30.0


def matrix_table(matrix: Matrix, *, of: str) -> Markup:
    """Write it as a table for people and screen readers alike: the shade says nothing that the text does not.

    `of` tells its landmark from those of other measurements on the same page.
    """
    head = tag("tr", [tag("th", text, scope="col") for text in ("victim", "alone", *matrix.columns)])
    body = [
        tag("tr", tag("th", row.name, scope="row"), tag("td", row.alone), [_square(square) for square in row.squares])
        for row in matrix.rows
    ]
    inner = tag("table", tag("caption", matrix.title), tag("thead", head), tag("tbody", body), class_="matrix")
    return region(inner, f"{matrix.title}, {of}")


def matrix_picture(matrix: Matrix, *, title: str) -> Markup:
    """Draw it, with what each victim does alone under its name."""
    width, height = SIDE + COLUMN * len(matrix.columns) + 4, HEAD + ROW * len(matrix.rows) + 4
    drawn = [
        _text(name, SIDE + COLUMN * (place + 0.5), 19, "middle", None) for place, name in enumerate(matrix.columns)
    ]
    for line, row in enumerate(matrix.rows):
        y = HEAD + ROW * line
        drawn.append(_text(row.name, SIDE - 8, y + 19, "end", "said"))
        drawn.append(_text(row.alone, SIDE - 8, y + 34, "end", "small"))
        drawn += [_drawn(square, SIDE + COLUMN * place, y) for place, square in enumerate(row.squares)]
    return tag(
        "svg",
        tag("title", title),
        *drawn,
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        xmlns="http://www.w3.org/2000/svg",
        aria_label=title,
        class_="squares",
    )


def _square(square: Square) -> Markup:
    around = tag("small", square.around) if square.interval is not None else ""
    kind = "odd" if square.reason is not None else f"heat{square.shade}"
    return tag("td", tag("span", square.text), " ", around, class_=kind)


def _drawn(square: Square, x: float, y: float) -> Markup:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{COLUMN - 3:.1f}", "height": f"{ROW - 3:.1f}"}
    middle = x + (COLUMN - 3) / 2
    return tag(
        "g",
        tag("title", f"{square.text} {square.around}"),
        tag("rect", **place, class_="square"),
        tag("rect", **place, class_="heat", fill_opacity=f"{OPACITIES[square.shade]:g}"),
        _text("unknown" if square.reason is not None else square.text, middle, y + 19, "middle", "said"),
        _text(square.reason or square.around, middle, y + 34, "middle", "small"),
    )


def _text(said: str, x: float, y: float, anchor: str, kind: str | None) -> Markup:
    return tag("text", said[:24], x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_=kind)
