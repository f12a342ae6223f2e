"""Just enough of PromQL to hold expressions to house rules; whether they parse is promtool's to say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

DURATION = r"(?:\d+(?:ms|[smhdwy]))+"

_WORDS = frozenset(
    {
        *("by", "without", "on", "ignoring", "group_left", "group_right", "bool", "offset", "and", "or", "unless"),
        *(
            "sum",
            "min",
            "max",
            "avg",
            "group",
            "stddev",
            "stdvar",
            "count",
            "count_values",
            "bottomk",
            "topk",
            "quantile",
        ),
        *("inf", "nan", "start", "end"),
    }
)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'")
_CLAUSE = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"(?<![\w:$])([a-zA-Z_:][\w:]*)\s*(\{[^}]*\})?\s*(\[[^\]]*\])?")
_MATCHER = re.compile(r"(\w+)\s*(=~|!~|!=|=)\s*\"((?:[^\"\\]|\\.)*)\"")


@dataclass(frozen=True)
class Selector:
    """One series selector: its metric's name, its matchers, its range (without brackets), the function around it."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]
    window: str | None
    function: str | None


def selectors(expression: str) -> Iterator[Selector]:
    """Every selector of an expression, in order."""
    text = re.sub(r"#.*", "", expression)
    plain = _CLAUSE.sub(lambda match: " " * len(match[0]), text)
    for match in _SELECTOR.finditer(plain):
        name, matchers, window = match.groups()
        inside_string = any(quoted.start() < match.start() < quoted.end() for quoted in _STRING.finditer(plain))
        if inside_string or name.lower() in _WORDS or plain[match.end() :].lstrip().startswith("("):
            continue
        if re.fullmatch(DURATION, name):
            continue
        before = re.search(r"(\w+)\s*\(\s*$", plain[: match.start()])
        yield Selector(
            name, tuple(_MATCHER.findall(matchers or "")), window and window[1:-1], before[1] if before else None
        )


def clause_labels(expression: str) -> set[str]:
    """The labels that by, on, group_left and their kin name."""
    return {label for _, labels in _CLAUSE.findall(expression) for label in re.findall(r"\w+", labels)}
