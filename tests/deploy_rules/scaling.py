"""The shipped rules with every duration multiplied by one factor, and the proof that nothing else differs."""

from __future__ import annotations

import copy
import re
from fractions import Fraction
from typing import Any

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000, "y": 31_536_000_000}
_DURATION = re.compile(r"\d+(?:ms|[smhdwy])(?:\d+(?:ms|[smhdwy]))*")
_IN_EXPRESSION = re.compile(r"(\[[^\]]*\]|\boffset\s+-?[0-9a-z]+)")

RULE_DURATIONS = ("for", "keep_firing_for")
GROUP_DURATIONS = ("interval",)


def milliseconds(duration: str) -> int:
    return sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)(ms|[smhdwy])", duration))


def scaled_duration(duration: str, factor: Fraction) -> str:
    """`duration` times `factor`, in whole milliseconds; one that would not come out whole is refused."""
    result = milliseconds(duration) * factor
    if result.denominator != 1 or result <= 0:
        raise ValueError(f"{duration} times {factor} is not a whole number of milliseconds")
    return f"{result.numerator}ms"


def scaled_expression(expression: str, factor: Fraction) -> str:
    """Ranges, subquery steps and offsets times `factor`."""
    return _IN_EXPRESSION.sub(
        lambda part: _DURATION.sub(lambda match: scaled_duration(match[0], factor), part[0]), expression
    )


def scaled(rules: dict[str, Any], factor: Fraction) -> dict[str, Any]:
    """A rule file's content with `for`, keep_firing_for, group intervals, ranges and offsets times `factor`."""
    result = copy.deepcopy(rules)
    for group in result["groups"]:
        for key in GROUP_DURATIONS:
            if key in group:
                group[key] = scaled_duration(group[key], factor)
        for rule in group["rules"]:
            rule["expr"] = scaled_expression(rule["expr"], factor)
            for key in RULE_DURATIONS:
                if key in rule:
                    rule[key] = scaled_duration(rule[key], factor)
    return result


def differences(before: Any, after: Any, place: str = "") -> list[tuple[str, Any, Any]]:
    """Every leaf that differs between two documents of the same shape; another shape is a difference too."""
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        return [found for key in before for found in differences(before[key], after[key], f"{place}/{key}")]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [
            found
            for at, pair in enumerate(zip(before, after, strict=True))
            for found in differences(*pair, f"{place}/{at}")
        ]
    return [] if before == after else [(place, before, after)]


def durations_apart(expression: str) -> tuple[str, list[int]]:
    """An expression with its durations taken out, and those durations in milliseconds."""
    found: list[int] = []

    def take(part: re.Match[str]) -> str:
        found.extend(milliseconds(match[0]) for match in _DURATION.finditer(part[0]))
        return _DURATION.sub("DURATION", part[0])

    return _IN_EXPRESSION.sub(take, expression), found
