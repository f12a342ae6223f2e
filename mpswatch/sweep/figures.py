"""From the repeats of a cap to its one cell: two figures, burst and sustained, each by its own name. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import msgspec

from mpswatch.documents import Cell, Conditions, ConditionsDuring, Figure, Reason, Repeat
from mpswatch.evidence.median import CONFIDENCE, spread, summarize
from mpswatch.sweep.bench import Seen
from mpswatch.sweep.cells import Outcome
from mpswatch.sweep.plan import Plan, tflops

WATCHED = ("sm_clock_mhz", "power_watts", "temperature_celsius", "throttle_reasons")


def cell_of(plan: Plan, *, order: int, outcomes: Sequence[Outcome], over: str | None = None) -> Cell:
    """The cell of one cap, number `order` of the plan, from at least one outcome.

    `seconds` and `tflops` are those of the median pass: one of the passes that were run, each of which is the quick
    protocol's. A repeat that failed is told of in `failure`, and takes nothing from those that did not. `over` says
    why no more repeats ran, where that was not of the plan's own choosing.
    """
    measured = [outcome for outcome in outcomes if outcome.result is not None]
    repeats = tuple(_repeat(outcome) for outcome in outcomes)
    base = (measured or list(outcomes))[-1].cell
    if not measured:
        return msgspec.structs.replace(base, order=order, repeats=repeats)
    passes = [_passes(outcome) for outcome in measured]
    seconds = statistics.median_low([each for some in passes for each in some])
    failed = [f"repeat {each.order}: {each.cell.unknown_reason}" for each in outcomes if each.result is None]
    notes = [note for note in (base.failure, "; ".join(failed) or None, over) if note]
    return msgspec.structs.replace(
        base,
        order=order,
        seconds=seconds,
        tflops=tflops(size=plan.size, iters=plan.iters, seconds=seconds),
        conditions_before=measured[0].cell.conditions_before,
        failure="; ".join(notes) or None,
        samples=(),
        burst=burst_of(plan, measured),
        sustained=sustained_of(plan, measured),
        repeats=repeats,
    )


def burst_of(plan: Plan, measured: Sequence[Outcome]) -> Figure:
    """Passes of `iters`, each after a rest: what the GPU gives before power and heat hold it back."""
    each = [[seconds / plan.iters for seconds in _passes(outcome)] for outcome in measured]
    first = measured[0].seen
    return _figure(plan, each, [outcome.seen for outcome in measured], "passes", before=first.before)


def sustained_of(plan: Plan, measured: Sequence[Outcome]) -> Figure | None:
    """Blocks under load, after settling: what the GPU gives to work that goes on."""
    results = [outcome.result for outcome in measured if outcome.result is not None]
    each = [list(result.sustained.samples) for result in results if result.sustained and result.sustained.samples]
    if not each:
        return None
    seen = [outcome.seen for outcome in measured]
    figure = _figure(plan, each, seen, "sustained", before=_last_before(seen[0], "sustained"))
    said = [result.sustained for result in results if result.sustained is not None]
    return msgspec.structs.replace(
        figure,
        settled=all(one.settled for one in said),
        settle_seconds=max(one.settle_seconds for one in said),
        conditions_after=seen[-1].after,
    )


def widths(plan: Plan, outcomes: Sequence[Outcome]) -> tuple[float, ...]:
    """How wide the intervals of both figures are by now, as ratios of the medians; infinite where there is none."""
    measured = [outcome for outcome in outcomes if outcome.result is not None]
    if not measured:
        return (float("inf"),)
    figures = [burst_of(plan, measured), sustained_of(plan, measured)]
    return tuple(_width(figure) for figure in figures if figure is not None)


def during(looks: Iterable[Conditions]) -> ConditionsDuring:
    """Medians and extremes of what was seen while work ran."""
    looks = list(looks)
    clocks = [look.sm_clock_mhz for look in looks if look.sm_clock_mhz is not None]
    power = [look.power_watts for look in looks if look.power_watts is not None]
    heat = [look.temperature_celsius for look in looks if look.temperature_celsius is not None]
    throttled = [look.throttle_reasons for look in looks if look.throttle_reasons is not None]
    unknown = {
        name: next((look.unknown[name] for look in looks if name in look.unknown), Reason.NOT_RECORDED)
        for name, known in zip(WATCHED, (clocks, power, heat, throttled), strict=True)
        if not known
    }
    return ConditionsDuring(
        count=len(looks),
        sm_clock_mhz=statistics.median(clocks) if clocks else None,
        sm_clock_mhz_least=min(clocks, default=None),
        sm_clock_mhz_most=max(clocks, default=None),
        power_watts=statistics.median(power) if power else None,
        power_watts_most=max(power, default=None),
        temperature_celsius_most=max(heat, default=None),
        throttle_reasons=tuple(sorted({reason for some in throttled for reason in some})) if throttled else None,
        unknown=unknown,
    )


def within(seen: Seen, phase: str) -> list[Conditions]:
    """What was seen of the GPU while the client was in that phase, by the one clock of this host."""
    if seen.result is None or phase not in seen.result.phases:
        return []
    began, ended = seen.result.phases[phase]
    return [conditions for at, conditions in seen.during if began <= at <= ended]


def _figure(
    plan: Plan, each: Sequence[Sequence[float]], seen: Sequence[Seen], phase: str, *, before: Conditions | None
) -> Figure:
    samples = [seconds for some in each for seconds in some]
    summary = summarize(samples, CONFIDENCE)
    interval = summary.interval

    def rate(seconds: float) -> float:
        return tflops(size=plan.size, iters=1, seconds=seconds)

    settings = plan.thorough
    return Figure(
        tflops=rate(summary.median),
        interval_low=rate(interval.high) if interval else None,
        interval_high=rate(interval.low) if interval else None,
        confidence=CONFIDENCE,
        within_width=settings is not None and summary.width <= settings.interval_width,
        spread=summary.spread,
        between_repeats=spread([statistics.median_low(some) for some in each]),
        count=summary.count,
        repeats=len(each),
        samples=tuple(samples),
        conditions_before=before,
        conditions_during=during(look for one in seen for look in within(one, phase)),
    )


def _width(figure: Figure) -> float:
    if figure.interval_low is None or figure.interval_high is None:
        return float("inf")
    return (figure.interval_high - figure.interval_low) / figure.tflops


def _passes(outcome: Outcome) -> tuple[float, ...]:
    result = outcome.result
    return () if result is None else result.passes or (result.seconds,)


def _last_before(seen: Seen, phase: str) -> Conditions | None:
    """The newest look before that phase began."""
    if seen.result is None or phase not in seen.result.phases:
        return None
    began = seen.result.phases[phase][0]
    return next((conditions for at, conditions in reversed(seen.during) if at < began), seen.before)


def _repeat(outcome: Outcome) -> Repeat:
    cell, result = outcome.cell, outcome.result
    sustained = result.sustained if result is not None else None
    return Repeat(
        order=outcome.order,
        state=cell.state,
        unknown_reason=cell.unknown_reason,
        failure=cell.failure,
        measured_at=cell.measured_at,
        client_pid=cell.client_pid,
        sm_count=cell.sm_count,
        passes=_passes(outcome),
        sustained=sustained.samples if sustained else (),
        settled=sustained.settled if sustained else None,
        longest_unwatched=cell.pieces.longest_unwatched if cell.pieces else None,
        busy=cell.timings.busy if cell.timings else None,
    )
