"""HTML as function calls: every text is escaped unless it came out of `tag` itself."""

from __future__ import annotations

from html import escape


class Markup(str):
    """Text that is HTML already. Only this module makes it."""

    __slots__ = ()


def tag(name: str, /, *children: object, **attributes: str | bool | None) -> Markup:
    """Write one element. An attribute of None or False is left out; `class_` is written `class`, `_` as `-`."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(value)}"')
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
    text = str(child)
    # Control characters mean nothing in a page, and bidirectional ones would reorder what stands around them.
    return escape("".join(char if char.isprintable() else "\ufffd" for char in text))
