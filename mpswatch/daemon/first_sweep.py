"""When a daemon that has just started may sweep: a crash loop must not. Pure."""

from __future__ import annotations

from datetime import datetime

AGAIN_AT_LEAST = 60.0
"""Seconds after a refusal before the next attempt; doubled at each further one, up to the interval."""


def first_sweep_in(*, interval: float, newest_start: datetime | None, known: bool, now: datetime) -> float:
    """Seconds to wait before the first sweep.

    `newest_start` is the newest start in journal or archive. Without `known` (neither could be read, or nothing can
    be written there) a whole interval is waited, so that a process which never lives that long never sweeps.
    """
    if not known:
        return interval
    if newest_start is None:
        return 0.0
    age = (now - newest_start).total_seconds()
    return min(interval, max(0.0, interval - age))  # a start in the future: the clock was set back


def again_in(*, interval: float, refusals: int) -> float:
    """Seconds until the attempt after `refusals` (at least 1) refused ones in a row."""
    return float(min(interval, AGAIN_AT_LEAST * 2 ** (min(refusals, 20) - 1)))
