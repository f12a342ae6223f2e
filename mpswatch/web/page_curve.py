"""The newest run of one target: its curve with intervals over earlier runs, and a row for every cap."""

from __future__ import annotations

from mpswatch.documents import CapStanding, Cell, Figure, HistoryLook, SweepDocument
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
    heading = tag("h2", f"Throughput by cap: {target.daemon}, {_short(target.gpu_uuid)}, plan {target.plan}")
    document, look = health.document, view.history.get(target)
    if document is None:
        text = ("unknown: stale. The newest run finished ", moment(health.finished_at))
        return tag("section", heading, tag("p", text, class_="odd"))
    picture, rows = picture_of(document, look), caps_table(document, look)
    when = tag(
        "p",
        tag("a", f"run {document.run_id}", href=f"/runs/{document.run_id}") if document.run_id else "run without an id",
        ", finished ",
        moment(health.finished_at),
        f", {health.outcome}",
    )
    title = tag("div", heading, when)
    return Markup(
        tag("section", title, picture, _legend(look), class_="half")
        + tag("section", tag("h2", "Caps"), rows, class_="half")
    )


def picture_of(document: SweepDocument, look: HistoryLook | None) -> Markup:
    """Draw a run's curves: one picture a quantity, because burst and sustained never share one."""
    pictures = []
    for quantity, words in (("tflops", "TFLOPS"), ("burst", "burst TFLOPS"), ("sustained", "sustained TFLOPS")):
        points = [point for cell in document.cells if (point := _point(cell, quantity, look)) is not None]
        if not points:
            continue
        earlier = [run.tflops for run in look.previous] if look is not None and quantity == "tflops" else []
        title = f"{words} by active thread percentage" + (f", over {len(earlier)} earlier runs" if earlier else "")
        pictures.append(tag("figure", curve(points, earlier, title=title), tag("figcaption", title, class_="soft")))
    return tag("div", pictures)


def caps_table(document: SweepDocument, look: HistoryLook | None, *, history: bool = True) -> Markup:
    """Write a row for every cap: numbers with intervals, whether it is enforced; with `history`, how it stands."""
    standings = {(one.cap, one.quantity): one for one in look.caps} if look is not None else {}
    thorough = any(cell.burst is not None or cell.sustained is not None for cell in document.cells)
    heads = [
        "cap",
        "TFLOPS",
        *(["burst", "sustained"] if thorough else []),
        "usual",
        "SMs",
        "verdict",
        "history",
        "way",
    ]
    rows: list[list[object]] = []
    for cell in document.cells:
        stands = standings.get((cell.cap, "tflops"))
        past = [run.tflops.get(cell.cap) for run in look.previous] if look is not None else []
        figures = [_figure(cell.burst), _figure(cell.sustained)] if thorough else []
        rows.append(
            [
                f"{cell.cap} %",
                number(cell.tflops)
                if cell.tflops is not None
                else tag("span", f"unknown: {cell.unknown_reason}", class_="odd"),
                *figures,
                _usual(stands),
                _multiprocessors(cell),
                _verdict(cell),
                _standing(stands),
                spark([*past, cell.tflops], mark="bad" if stands is not None and stands.standing == "below" else "dot"),
            ]
        )
    if not history:
        left_out = {heads.index(name) for name in ("usual", "history", "way")}
        heads = [name for place, name in enumerate(heads) if place not in left_out]
        rows = [[value for place, value in enumerate(row) if place not in left_out] for row in rows]
    state = "simulated numbers" if document.simulated else "measured"
    return table(f"Each cap of this run, {state}", heads, rows, numbers=range(1, heads.index("SMs")))


def _point(cell: Cell, quantity: str, look: HistoryLook | None) -> CapPoint | None:
    cap = float(cell.cap)
    if quantity == "tflops":
        standing = None
        if look is not None:
            standing = next((one for one in look.caps if (one.cap, one.quantity) == (cell.cap, "tflops")), None)
        usual = None
        if standing is not None and standing.low is not None and standing.high is not None:
            usual = (standing.low, standing.high)
        return CapPoint(cap, cell.tflops, None, usual)
    figure = cell.burst if quantity == "burst" else cell.sustained
    return None if figure is None else CapPoint(cap, figure.tflops, _interval(figure))


def _interval(figure: Figure) -> tuple[float, float] | None:
    if figure.interval_low is None or figure.interval_high is None:
        return None
    return figure.interval_low, figure.interval_high


def _figure(figure: Figure | None) -> str:
    if figure is None:
        return "unknown"
    interval = _interval(figure)
    return number(figure.tflops) + (f" ({number(interval[0])} to {number(interval[1])})" if interval else "")


def _usual(standing: CapStanding | None) -> str:
    if standing is None or standing.median is None:
        return ""
    return f"{number(standing.low)} – {number(standing.high)}"


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
    return tag("span", words + by, class_=kind if by else f"{kind} short")


def _legend(look: HistoryLook | None) -> Markup:
    if look is None:
        return tag("p", "Earlier runs are not known (yet).", class_="soft")
    text = "Thick line: this run. Thin lines: earlier runs. Band: what its own history calls usual."
    unread = f" {look.unreadable} files of the archive could not be read." if look.unreadable else ""
    return tag("p", text + unread, class_="soft")


def _short(uuid: str) -> str:
    return "-".join(uuid.split("-")[:2])
