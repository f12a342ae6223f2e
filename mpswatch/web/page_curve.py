"""The newest run of one target: its curves with intervals over earlier runs, and a row for every quantity of a cap."""

from __future__ import annotations

from collections.abc import Sequence

from mpswatch.documents import CapStanding, Cell, HistoryLook, Quantity, SweepDocument
from mpswatch.evidence.quantities import WORDS, Reading, quantities_of, readings
from mpswatch.latest import SweepHealth, Target, View
from mpswatch.markup.charts import CapPoint, curve, spark
from mpswatch.markup.html import Markup, moment, number, table, tag

STANDINGS = {
    "usual": ("as usual", "good"),
    "slower_once": ("slower, this once", "odd"),
    "below": ("below its history", "wrong"),
    "above": ("above its history", "odd"),
    "explained": ("explained", "odd"),
}


def curve_section(view: View, target: Target, health: SweepHealth) -> Markup:
    """Write one target's section."""
    name = f"{target.daemon}, {_short(target.gpu_uuid)}, plan {target.plan}"
    heading = tag("h2", f"Throughput by cap: {name}")
    document, look = health.document, view.history.get(target)
    if document is None:
        text = ("unknown: stale. The newest run finished ", moment(health.finished_at))
        return tag("section", heading, tag("p", text, class_="odd"))
    when = tag(
        "p",
        tag("a", f"run {document.run_id}", href=f"/runs/{document.run_id}") if document.run_id else "run without an id",
        ", finished ",
        moment(health.finished_at),
        f", {health.outcome}",
    )
    return Markup(
        tag("section", heading, when, picture_of(document, look), _legend(look), class_="third")
        + tag("section", tag("h2", f"Caps: {name}"), caps_table(document, look), class_="wide")
    )


def picture_of(document: SweepDocument, look: HistoryLook | None) -> Markup:
    """Draw a run's curves: one picture a quantity, because burst and sustained never share one."""
    pictures = []
    for quantity in quantities_of(document):
        points = [_point(cell, quantity, look) for cell in document.cells]
        earlier = [run.of(quantity) for run in look.previous] if look is not None else []
        title = f"{WORDS[quantity]} TFLOPS by active thread percentage"
        title += f", over {len(earlier)} earlier runs" if earlier else ""
        pictures.append(tag("figure", curve(points, earlier, title=title), tag("figcaption", title, class_="soft")))
    return tag("div", pictures, class_="beside")


def caps_table(document: SweepDocument, look: HistoryLook | None, *, history: bool = True) -> Markup:
    """Write a row for every quantity of every cap: the figure with its interval, clock and power, whether the cap is
    enforced, and with `history` how the figure stands."""
    quantities = quantities_of(document)
    when = "at" if "sustained" in quantities else "after it"  # one pass is shorter than the pause between two looks
    heads = ("cap", "TFLOPS", when, "SMs", "verdict", *(("history", "way") if history else ()))
    rows = [
        [
            f"{cell.cap} % {reading.words}",
            _figure(reading),
            _conditions(reading),
            _multiprocessors(cell),
            _verdict(cell),
            *(_history(cell, reading, look) if history else ()),
        ]
        for cell in document.cells
        for reading in readings(cell, quantities)
    ]
    state = "simulated numbers" if document.simulated else "measured"
    return table(f"Each cap of run {document.run_id or 'without an id'}, {state}", heads, rows)


def _conditions(reading: Reading) -> object:
    """Which clock and power go with a figure."""
    if reading.sm_clock_mhz is None and reading.power_watts is None:
        return "unknown"
    clock = "clock unknown" if reading.sm_clock_mhz is None else f"{reading.sm_clock_mhz:.0f} MHz"
    power = "power unknown" if reading.power_watts is None else f"{reading.power_watts:.0f} W"
    return tag("span", f"{clock},", class_="short"), " ", tag("span", power, class_="short")


def _history(cell: Cell, reading: Reading, look: HistoryLook | None) -> tuple[Markup, Markup]:
    """How the figure stands, and the way that it came."""
    stands = _standing_of(look, cell.cap, reading.quantity)
    past = [run.of(reading.quantity).get(cell.cap) for run in look.previous] if look is not None else []
    mark = "bad" if stands is not None and stands.standing == "below" else "dot"
    return _standing(stands), spark([*past, reading.tflops], mark=mark)


def _standing_of(look: HistoryLook | None, cap: str, quantity: Quantity) -> CapStanding | None:
    found: Sequence[CapStanding] = look.caps if look is not None else ()
    return next((one for one in found if (one.cap, one.quantity) == (cap, quantity)), None)


def _point(cell: Cell, quantity: Quantity, look: HistoryLook | None) -> CapPoint:
    (reading,) = readings(cell, (quantity,))
    standing = _standing_of(look, cell.cap, quantity)
    usual = None
    if standing is not None and standing.low is not None and standing.high is not None:
        usual = (standing.low, standing.high)
    return CapPoint(float(cell.cap), reading.tflops, _interval(reading), usual)


def _interval(reading: Reading) -> tuple[float, float] | None:
    return None if reading.low is None or reading.high is None else (reading.low, reading.high)


def _figure(reading: Reading) -> Markup:
    if reading.tflops is None:
        return tag("span", f"unknown: {reading.reason}", class_="odd")
    interval = _interval(reading)
    around = f" ({number(interval[0])} to {number(interval[1])})" if interval else ""
    unsettled = ", had not settled" if reading.settled is False else ""
    return tag("span", number(reading.tflops) + around + unsettled)


def _multiprocessors(cell: Cell) -> str:
    if cell.sm_count is None:
        return "unknown"
    return str(cell.sm_count) + (" (not what the cap implies)" if cell.sm_count_as_expected is False else "")


def _verdict(cell: Cell) -> Markup:
    if cell.verdict is None:
        return tag("span", "not judged", class_="soft")
    kind = {"enforced": "good", "not_enforced": "wrong"}.get(cell.verdict.verdict, "odd")
    return tag("span", cell.verdict.verdict.replace("_", " "), class_=kind, title=" ".join(cell.verdict.evidence))


def _standing(standing: CapStanding | None) -> Markup:
    if standing is None:
        return tag("span", "not known yet", class_="soft")
    if standing.standing == "unknown":
        return tag("span", f"unknown: {standing.unknown_reason}", class_="soft")
    words, kind = STANDINGS[standing.standing]
    by = f" ({'; '.join(standing.explained_by)})" if standing.explained_by else ""
    usual = f", usually {number(standing.low)} – {number(standing.high)}" if standing.median is not None else ""
    return tag("span", tag("span", words + by, class_=kind), tag("span", usual, class_="soft"))


def _legend(look: HistoryLook | None) -> Markup:
    if look is None:
        return tag("p", "Earlier runs are not known (yet).", class_="soft")
    text = "Thick line: this run. Thin lines: earlier runs. Band: what its own history calls usual."
    unread = f" {look.unreadable} files of the archive could not be read." if look.unreadable else ""
    return tag("p", text + unread, class_="soft")


def _short(uuid: str) -> str:
    return "-".join(uuid.split("-")[:2])
