"""HTML as function calls: every text is escaped unless it came out of `tag` itself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape

from mpswatch.names import printable


class Markup(str):
    """Text that is HTML already. Only this module makes it."""

    __slots__ = ()


def tag(name: str, /, *children: object, **attributes: str | bool | None) -> Markup:
    """Write one element. An attribute of None or False is left out; `class_` is written `class`, `_` as `-`."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(printable(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    inner = "".join(_written(child) for child in children)
    return Markup(f"<{name}{written}>{inner}</{name}>")


def void(name: str, /, **attributes: str) -> Markup:
    """Write an element that has no end tag (`meta`, `link`)."""
    return Markup(tag(name, **attributes).removesuffix(f"</{name}>"))


def style(css: str) -> Markup:
    """Write our own style sheet, whose text is HTML's only exception to escaping."""
    if "<" in css:
        raise ValueError("a style sheet cannot hold a tag")
    return Markup(f"<style>{css}</style>")


def document(*children: Markup) -> str:
    return "<!doctype html>\n" + "".join(children) + "\n"


def _written(child: object) -> str:
    if isinstance(child, Markup):
        return child
    if isinstance(child, (list, tuple)):
        return "".join(_written(item) for item in child)
    return escape(printable(str(child)))


def table(
    caption: str, heads: Sequence[str], rows: Sequence[Sequence[object]], *, numbers: Sequence[int] = ()
) -> Markup:
    """Write a table, each of whose rows becomes a card where there is no room for its columns.

    `numbers` are columns of numbers. The first column heads its row. Without rows there is one that says none.
    Roles are written out because a browser forgets them where a style sheet takes the table's layout away.
    """
    kinds = ["number" if place in numbers else None for place in range(len(heads))]
    columns = list(zip(heads, kinds, strict=True))
    head = tag(
        "tr", [tag("th", text, scope="col", role="columnheader", class_=kind) for text, kind in columns], role="row"
    )
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row", role="rowheader"),
            [
                tag("td", tag("div", value), role="cell", class_=kind, data_label=text)
                for value, (text, kind) in zip(row[1:], columns[1:], strict=True)
            ],
            role="row",
        )
        for row in rows
    ]
    if not body:
        body = [tag("tr", tag("td", "none", role="cell", colspan=str(len(heads))), role="row")]
    inner = tag(
        "table",
        tag("caption", caption),
        tag("thead", head, role="rowgroup"),
        tag("tbody", body, role="rowgroup"),
        role="table",
        class_="few" if len(heads) <= 4 else "some" if len(heads) <= 6 else "many",
    )
    return region(inner, caption)


def region(inner: Markup, label: str) -> Markup:
    """Put a table where it scrolls sideways by itself, should it be wider than the screen all the same."""
    return tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label=label)


def moment(at: datetime) -> Markup:
    """Write a time for people and programs, in UTC; where there is little room it breaks between date and clock."""
    date, clock = f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC".split(" ", 1)
    parts = tag("span", date, class_="short"), " ", tag("span", clock, class_="short")
    return tag("time", *parts, datetime=at.isoformat())


def number(value: float | None, unknown: str = "unknown") -> str:
    """Write a throughput: four digits at most."""
    if value is None:
        return unknown
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"
