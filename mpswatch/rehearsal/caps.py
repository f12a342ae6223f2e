"""How MPS turns a cap into streaming multiprocessors, as measured on an H200 (mps-facts: caps)."""

from __future__ import annotations

import math

SM_TOTAL = 132
STEP = 2
FLOOR = 8


def effective(cap: str | None, default: float) -> float:
    """The percentage that applies: the lower of the server's default and the client's cap.

    A cap that is no number above 0 and at most 100 is ignored without a word (recordings: bad-caps).
    """
    try:
        asked = float(cap) if cap is not None else 100.0
    except ValueError:
        return default
    if math.isnan(asked) or not 0 < asked <= 100:
        return default
    return min(asked, default)


def sm_count(percentage: float) -> int:
    """SMs seen under `percentage`, of 132: rounded down to an even number, 8 at least."""
    return max(math.floor(SM_TOTAL * percentage / 100 / STEP) * STEP, FLOOR)
