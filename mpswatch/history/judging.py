"""Change detection: how a cap's newest throughput stands against its own history. Pure; docs/history.md says why so.

A run is *slower* when it lies below `median - max(SPREADS * 1.4826 * MAD, FLOOR * median)` of the runs before it.
The 1.4826 makes the median absolute deviation (MAD) estimate the standard deviation of normally distributed values.
One slower run is said (`slower_once`) and not alarmed; a second in a row is (`below`). A run that is slower beside
somebody new is `explained`, unless enough earlier runs had the same company: then those are what it is held against.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from mpswatch.documents import QUANTITIES, CapStanding, Quantity, Reason, Standing
from mpswatch.history.facts import CapFacts, RunFacts

WINDOW = 40
"""So many runs before the one in question are its history: a lasting change becomes the usual after half of them."""
SHORTEST = 8
"""A history of fewer runs is too short to judge by."""
SPREADS = 5.0
FLOOR = 0.03
"""Changes under 3 % are never called changes, however quiet the history (an idle H200 wanders by 0.5 % and more)."""
LOOK_BACK = 200
"""So far back is looked for runs in the same company."""

_NORMAL = 1.4826


@dataclass(frozen=True, slots=True)
class Band:
    """What the history of one cap calls usual, in TFLOPS, from `runs` runs."""

    low: float
    median: float
    high: float
    runs: int


@dataclass(frozen=True, slots=True)
class _Point:
    tflops: float
    foreign: tuple[str, ...] | None
    managed: int | None
    company: tuple[tuple[str, ...] | None, int | None]


def band_of(values: Sequence[float]) -> Band:
    """Give the usual range of `values` (at least one)."""
    middle = median(values)
    spread = median([abs(value - middle) for value in values])
    reach = max(SPREADS * _NORMAL * spread, FLOOR * middle)
    return Band(max(0.0, middle - reach), middle, middle + reach, len(values))


def judge(runs: Sequence[RunFacts], cap: str, quantity: Quantity = "tflops") -> CapStanding:
    """Judge the last of `runs` (one series, oldest first, `LOOK_BACK` and one are enough) under `cap`."""
    return judge_each(runs, cap, quantity, first=len(runs) - 1)[0]


def judge_each(
    runs: Sequence[RunFacts], cap: str, quantity: Quantity = "tflops", *, first: int = 0
) -> list[CapStanding]:
    """Judge every one of `runs` (one series, oldest first) from the `first` on, each by those before it."""
    points: list[_Point] = []
    standings: list[CapStanding] = []
    for place, run in enumerate(runs):
        facts = run.of(cap)
        point = _point(run, facts, quantity)
        if place >= first:
            if point is None:
                reason = (facts.reason if facts is not None else None) or Reason.NOT_RECORDED.value
                standings.append(CapStanding(cap=cap, quantity=quantity, standing="unknown", unknown_reason=reason))
            else:
                standings.append(_judged(point, points[-LOOK_BACK - 1 :], cap, quantity))
        if point is not None:
            points.append(point)
    return standings


def _judged(newest: _Point, before: Sequence[_Point], cap: str, quantity: Quantity) -> CapStanding:
    if len(before) < SHORTEST:
        return CapStanding(
            cap=cap,
            quantity=quantity,
            standing="unknown",
            unknown_reason=Reason.HISTORY_SHORT,
            tflops=newest.tflops,
            runs=len(before),
        )
    verdict, band, why = _stands(newest, before)
    if verdict in ("slower", "faster"):
        once: dict[str, Standing] = {"slower": "slower_once", "faster": "usual"}
        twice: dict[str, Standing] = {"slower": "below", "faster": "above"}
        again = len(before) > SHORTEST and _stands(before[-1], before[:-1])[0] == verdict
        standing = twice[verdict] if again else once[verdict]
    else:
        standing = "explained" if verdict == "explained" else "usual"
    return CapStanding(
        cap=cap,
        quantity=quantity,
        standing=standing,
        tflops=newest.tflops,
        median=band.median,
        low=band.low,
        high=band.high,
        runs=band.runs,
        explained_by=why,
    )


def judge_all(runs: Sequence[RunFacts]) -> tuple[CapStanding, ...]:
    """Judge every cap of the last of `runs`, and every quantity that it has."""
    return tuple(
        judge(runs, facts.cap, quantity)
        for facts in runs[-1].caps
        for quantity in QUANTITIES
        if quantity == "tflops" or facts.amount(quantity) is not None
    )


def _point(run: RunFacts, facts: CapFacts | None, quantity: Quantity) -> _Point | None:
    amount = facts.amount(quantity) if facts is not None else None
    if facts is None or amount is None:
        return None
    return _Point(amount.tflops, facts.foreign, run.managed, (facts.foreign, run.managed))


def _stands(point: _Point, before: Sequence[_Point]) -> tuple[str, Band, tuple[str, ...]]:
    """`usual`, `slower`, `faster` or `explained`, against which band, and by whom."""
    alike = [other for other in before[-LOOK_BACK:] if other.company == point.company][-WINDOW:]
    recent = before[-WINDOW:]
    if point.foreign is not None and len(alike) >= SHORTEST:
        band = band_of([other.tflops for other in alike])
        return _direction(point, band), band, ()
    band = band_of([other.tflops for other in recent])
    direction = _direction(point, band)
    if direction == "usual":
        return direction, band, ()
    came, left = _difference(point, recent)
    why = came if direction == "slower" else left
    return ("explained", band, why) if why else (direction, band, ())


def _direction(point: _Point, band: Band) -> str:
    if point.tflops < band.low:
        return "slower"
    return "faster" if point.tflops > band.high else "usual"


def _difference(point: _Point, recent: Sequence[_Point]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Who is there now and was not in most of the recent runs, and who was in most of them and has left."""
    came: list[str] = []
    left: list[str] = []
    seen = [other.foreign for other in recent if other.foreign is not None]
    if point.foreign is not None and seen:
        counts = [Counter(names) for names in seen]
        now = Counter(point.foreign)
        for name in sorted(now | sum(counts, Counter())):
            usual = sorted(count[name] for count in counts)[(len(counts) - 1) // 2]
            came += [f"foreign: {name}"] * (now[name] > usual)
            left += [f"left: {name}"] * (now[name] < usual)
    clients = [other.managed for other in recent if other.managed is not None]
    if point.managed is not None and clients:
        usual_clients = sorted(clients)[(len(clients) - 1) // 2]
        change = f"managed clients: {point.managed}, usually {usual_clients}"
        came += [change] * (point.managed > usual_clients)
        left += [change] * (point.managed < usual_clients)
    return tuple(came), tuple(left)
