"""What a cap implies for the number of streaming multiprocessors (SMs) that a client sees."""

from __future__ import annotations

from mpswatch.documents import SmExpectation

# The step is 2 and the floor 8 on the H200; both are unknown on other GPUs, so a whole floor is allowed for.
_FLOOR = 8


def expectation(total: int, cap: str) -> SmExpectation:
    """`total` is the whole device's SM count, never what a capped client saw; `cap` is in percent."""
    share = total * float(cap) / 100
    return SmExpectation(total=total, at_most=max(share, float(_FLOOR)), above=share - _FLOOR)


def as_expected(seen: int, expected: SmExpectation, seen_at_full: int | None = None) -> bool:
    """Whether `seen` SMs are what the cap implies, and no more than the 100 % cell saw (where there was one)."""
    agrees = expected.above < seen <= expected.at_most
    return agrees and (seen_at_full is None or seen <= seen_at_full)
