"""What a neighbour costs: the share of the rate alone that is lost beside it, with an interval."""

from __future__ import annotations

from dataclasses import dataclass

from mpswatch.evidence.median import Interval

EACH = 0.975
"""Both rates lie in their intervals with this confidence each, so the slowdown's holds with at least 95 %
(Bonferroni's inequality)."""


@dataclass(frozen=True, kw_only=True)
class Slowdown:
    """1 - beside / alone; `low` and `high` are None where either rate has no interval."""

    value: float
    low: float | None
    high: float | None


def slowdown(alone: float, beside: float, around_alone: Interval | None, around_beside: Interval | None) -> Slowdown:
    """From two median rates above 0, each with its interval of confidence `EACH`."""
    value = 1 - beside / alone
    if around_alone is None or around_beside is None or around_alone.low <= 0:
        return Slowdown(value=value, low=None, high=None)
    return Slowdown(
        value=value,
        low=1 - around_beside.high / around_alone.low,
        high=1 - around_beside.low / around_alone.high,
    )
