"""One series of a report: its newest curves, a table of its caps, and the way of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from mpswatch.documents import Quantity
from mpswatch.evidence.quantities import WORDS
from mpswatch.history import Amount, RunFacts, band_of
from mpswatch.markup.charts import CapPoint, Moment, curve, history
from mpswatch.markup.html import Markup, moment, number, table, tag
from mpswatch.report.gathering import CapReport, SeriesReport

_CHANGED = {"below": "bad", "slower_once": "why", "explained": "why", "above": "why"}
_LINES = 200
_EARLIER = 60


def series(one: SeriesReport) -> Markup:
    """Write its sections."""
    left = (
        tag("p", f"{one.left_out} older runs of the period are left out.", class_="odd") if one.left_out else Markup()
    )
    heads = ("cap", "median", "least to most", "MHz", "W", "numbers", "without one", "stands out", "verdicts")
    rows = [_row(one, cap) for cap in one.caps]
    curves = [
        tag("figure", curve_of(one, quantity), tag("figcaption", curve_title(one, quantity), class_="soft"))
        for quantity in one.quantities
    ]
    ways = [
        tag("section", tag("h3", f"{cap.title} over time"), way_of(one, cap), _remarks(one, cap), class_="third")
        for cap in one.caps
    ]
    return Markup(
        tag(
            "section",
            tag("h2", one.series.title),
            tag("p", f"Client: {one.series.client_runtime}", class_="soft"),
            left,
            tag("div", curves, class_="beside"),
            table(f"Caps over the period, TFLOPS: {one.series.title}", heads, rows, numbers=range(1, 6)),
        )
        + "".join(ways)
    )


def curve_of(one: SeriesReport, quantity: Quantity) -> Markup:
    """Draw one quantity of the newest run over the others; the band is what the period's runs call usual."""
    newest, earlier = one.runs[-1], one.runs[:-1][-_EARLIER:]
    known = {cap.cap: cap.known for cap in one.caps if cap.quantity == quantity}
    points = []
    for facts in newest.caps:
        amount, numbers = facts.amount(quantity), known.get(facts.cap, [])
        band = band_of(numbers) if len(numbers) >= 8 else None
        tflops = amount.tflops if amount is not None else None
        points.append(CapPoint(float(facts.cap), tflops, _interval(amount), (band.low, band.high) if band else None))
    return curve(points, [_numbers(run, quantity) for run in earlier], title=curve_title(one, quantity))


def curve_title(one: SeriesReport, quantity: Quantity) -> str:
    """Say what `curve_of` shows."""
    newest = one.runs[-1]
    name, earlier = newest.run_id or newest.started.isoformat(), min(len(one.runs) - 1, _EARLIER)
    return f"{WORDS[quantity]} TFLOPS by cap: run {name} over {earlier} earlier runs"


def way_of(one: SeriesReport, cap: CapReport) -> Markup:
    """Draw one quantity of one cap over the period."""
    moments = [
        Moment(
            run.started,
            amount.tflops if amount is not None else None,
            _CHANGED.get(standing.standing, ""),
            _interval(amount),
        )
        for run, amount, standing in zip(one.runs, cap.amounts, cap.standings, strict=True)
    ]
    band = band_of(cap.known) if len(cap.known) >= 8 else None
    return history(moments, title=way_title(cap), usual=(band.low, band.high) if band else None)


def way_title(cap: CapReport) -> str:
    """Say what `way_of` shows."""
    return f"{cap.title}, TFLOPS over time, {len(cap.known)} runs with a number"


def _numbers(run: RunFacts, quantity: Quantity) -> dict[str, float | None]:
    return {facts.cap: amount.tflops if (amount := facts.amount(quantity)) else None for facts in run.caps}


def _interval(amount: Amount | None) -> tuple[float, float] | None:
    return None if amount is None or amount.low is None or amount.high is None else (amount.low, amount.high)


def _row(one: SeriesReport, cap: CapReport) -> Sequence[object]:
    known = cap.known
    stood = Counter[str](standing.standing for standing in cap.standings if standing.standing in _CHANGED)
    verdicts = Counter[str](facts.verdict or "not judged" for run in one.runs if (facts := run.of(cap.cap)) is not None)
    return (
        cap.title,
        number(median(known) if known else None),
        f"{number(min(known))} to {number(max(known))}" if known else "unknown",
        _spread([amount.sm_clock_mhz for amount in cap.amounts if amount is not None]),
        _spread([amount.power_watts for amount in cap.amounts if amount is not None]),
        len(known),
        ", ".join(f"{count} {reason}" for reason, count in sorted(cap.missing.items())) or "0",
        _counted(stood) or "none",
        _counted(verdicts),
    )


def _spread(values: Sequence[float | None]) -> str:
    """The median of what is known, with its ends where they differ."""
    known = [value for value in values if value is not None]
    if not known:
        return "unknown"
    middle, least, most = f"{median(known):.0f}", f"{min(known):.0f}", f"{max(known):.0f}"
    return middle if least == most else f"{middle} ({least} to {most})"


def _counted(found: Counter[str]) -> str:
    return ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in sorted(found.items()))


def _remarks(one: SeriesReport, cap: CapReport) -> Markup:
    rows = [
        tag("li", moment(run.started), f": {number(amount.tflops if amount else None)} TFLOPS, ",
            standing.standing.replace("_", " "),
            f" ({'; '.join(standing.explained_by)})" if standing.explained_by else "",
            f", usually {number(standing.median)}")
        for run, amount, standing in zip(one.runs, cap.amounts, cap.standings, strict=True)
        if standing.standing in _CHANGED
    ]  # fmt: skip
    if not rows:
        return tag("p", "No run stands out.", class_="soft")
    return tag("details", tag("summary", f"{len(rows)} runs stand out"), tag("ul", rows[-_LINES:]))
