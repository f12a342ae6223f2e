"""When a sweep may begin: after a start (a crash loop must not sweep), after a refusal, for which targets. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from mpswatch.daemon.events import Target

AGAIN_AT_LEAST = 60.0
"""Seconds after a refusal before the next attempt; doubled at each further one, up to the interval."""

_EARLY = 2.0
"""Seconds before its interval is over that a target counts as due: triggers are not that exact."""


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


def due_now(
    aims: Sequence[Target], ages: Mapping[Target, float], *, interval: float, jitter: float
) -> tuple[tuple[Target, ...], float | None]:
    """Which of `aims` were not measured within an interval, and in how many seconds the first of the others is due.

    `ages` are seconds since each was measured last. A trigger may come `jitter` before a whole interval is over.
    """
    early = min(jitter, interval / 2) + _EARLY
    left = {aim: interval - ages[aim] for aim in aims if aim in ages and interval - ages[aim] > early}
    return tuple(aim for aim in aims if aim not in left), min(left.values(), default=None)
