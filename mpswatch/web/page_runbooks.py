"""The runbooks as a page: what to do when an alert fires, where the alert's own link leads."""

from __future__ import annotations

import re
from pathlib import Path

from mpswatch.markup.html import Markup, tag
from mpswatch.web.page import shell

RUNBOOKS = Path(__file__).with_name("runbooks.md")

_SPOKEN = re.compile(r"`([^`]+)`|\*\*(.+?)\*\*|\*(.+?)\*")


def runbooks_page(host: str, *, version: str, simulated: bool) -> str:
    """Write every section, each with the anchor that its alert's `runbook_url` names."""
    _, *parts = re.split(r"^##? (.+)\n", RUNBOOKS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    sections = [
        tag("section", tag("h2", title), *map(_block, re.split(r"\n{2,}", text.strip("\n"))), id=_anchor(title))
        for title, text in zip(parts[::2], parts[1::2], strict=True)
    ]
    return shell(host, version, tag("main", tag("div", sections, class_="grid"), id="main"), simulated=simulated)


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _block(text: str) -> Markup:
    """A paragraph, a list or a listing: as much of Markdown as the runbooks are written in."""
    if text.startswith("    "):
        return tag("pre", *(Markup(tag("span", line[4:]) + "\n") for line in text.split("\n")), tabindex="0")
    if text.startswith("- "):
        return tag("ul", [tag("li", _spoken(item)) for item in re.split(r"\n- ", text[2:])])
    return tag("p", _spoken(text))


def _spoken(text: str) -> list[object]:
    said: list[object] = []
    end = 0
    for found in _SPOKEN.finditer(words := " ".join(text.split())):
        code, strong, stressed = found.groups()
        said.append(words[end : found.start()])
        said.append(tag("code", code) if code else tag("strong" if strong else "em", *_spoken(strong or stressed)))
        end = found.end()
    return [*said, words[end:]]
