"""Pictures as SVG, drawn here: colours come from the style sheet's classes, so they follow dark and light."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from mpswatch.markup.html import Markup, number, tag

WIDTH, HEIGHT = 640.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 14.0, 12.0, 36.0


@dataclass(frozen=True, slots=True)
class CapPoint:
    """One cap of the newest run: TFLOPS with its own interval, and the range that its history calls usual."""

    cap: float
    tflops: float | None
    interval: tuple[float, float] | None = None
    usual: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """One run in a history: `mark` is "" for an ordinary one, `bad` or `why` for one that stands out."""

    at: datetime
    value: float | None
    mark: str = ""
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Stay:
    """How long somebody was there; None where that began before, or has not ended within, what is shown."""

    name: str
    since: datetime | None
    until: datetime | None


def curve(points: Sequence[CapPoint], earlier: Sequence[dict[str, float | None]], *, title: str) -> Markup:
    """Draw throughput over cap: the newest run with intervals, over earlier runs and the usual range."""
    values = [point.tflops for point in points if point.tflops is not None]
    values += [value for run in earlier for value in run.values() if value is not None]
    values += [edge for point in points for pair in (point.interval, point.usual) if pair for edge in pair]
    if not values:
        return tag("p", "No cap has a number.", class_="soft")
    top = _round_up(max(values))

    def place(cap: float, value: float) -> str:
        return f"{_x(cap, 0, 100):.1f},{_y(value, top):.1f}"

    ordered = sorted(points, key=lambda point: point.cap)
    banded = [(point.cap, point.usual) for point in ordered if point.usual is not None]
    drawn = [_frame(top, [(f"{cap:g} %", _x(cap, 0, 100)) for cap in (0, 25, 50, 75, 100)])]
    if len(banded) > 1:
        edge = [place(cap, usual[0]) for cap, usual in banded] + [place(cap, usual[1]) for cap, usual in banded[::-1]]
        drawn.append(tag("polygon", points=" ".join(edge), class_="band"))
    for run in earlier:
        known = sorted((float(cap), value) for cap, value in run.items() if value is not None)
        drawn.append(tag("polyline", points=" ".join(place(*pair) for pair in known), class_="past"))
    known = [(point.cap, point.tflops) for point in ordered if point.tflops is not None]
    drawn.append(tag("polyline", points=" ".join(place(*pair) for pair in known), class_="now"))
    drawn += [
        _dot(_x(point.cap, 0, 100), point.tflops, top, point.interval, "dot")
        for point in ordered
        if point.tflops is not None
    ]
    return _picture(drawn, title)


def history(
    moments: Sequence[Moment], *, title: str, usual: tuple[float, float] | None = None, low: float | None = None
) -> Markup:
    """Draw one cap's throughput over time. The scale begins at 0, so that a change looks as large as it is."""
    known = [(moment, moment.value) for moment in moments if moment.value is not None]
    if not known:
        return tag("p", "No run has a number.", class_="soft")
    top = _round_up(max(value for _, value in known))
    first, last = moments[0].at.timestamp(), moments[-1].at.timestamp()
    ticks = [
        (_day(first + share * (last - first)), _x(share, 0, 1)) for share in ((0, 0.5, 1) if last > first else (0,))
    ]
    drawn = [_frame(top, ticks)]
    if usual is not None:
        upper, lower = _y(min(usual[1], top), top), _y(usual[0], top)
        size = f"{WIDTH - LEFT - RIGHT:.1f}"
        drawn.append(
            tag("rect", x=f"{LEFT}", y=f"{upper:.1f}", width=size, height=f"{lower - upper:.1f}", class_="band")
        )
    if low is not None:
        y = f"{_y(low, top):.1f}"
        drawn.append(tag("line", x1=f"{LEFT}", x2=f"{WIDTH - RIGHT}", y1=y, y2=y, class_="low"))
    line: list[str] = []
    for moment in [*moments, None]:
        if moment is not None and moment.value is not None:
            line.append(f"{_x(moment.at.timestamp(), first, last):.1f},{_y(moment.value, top):.1f}")
        else:  # a run without a number is a gap, not a bridge
            drawn += [tag("polyline", points=" ".join(line), class_="now")] if len(line) > 1 else []
            line = []
    few = len(known) <= 150
    for moment, value in known:
        if few or moment.mark:
            place = _x(moment.at.timestamp(), first, last)
            drawn.append(_dot(place, value, top, moment.interval, moment.mark or "dot"))
    return _picture(drawn, title)


def timeline(stays: Sequence[Stay], first: datetime, last: datetime, *, title: str) -> Markup:
    """Draw who was there when, a bar each, with the name above it."""
    start, end = first.timestamp(), max(last.timestamp(), first.timestamp() + 1)
    row, height = 30.0, 30.0 * len(stays) + 30
    drawn = [
        tag("text", _day(at), x=f"{_x(share, 0, 1):.1f}", y=f"{height - 8:.1f}", text_anchor=anchor)
        for share, at, anchor in ((0, start, "start"), (1, end, "end"))
    ]
    for place, stay in enumerate(stays):
        left = _x(stay.since.timestamp() if stay.since else start, start, end)
        right = _x(stay.until.timestamp() if stay.until else end, start, end)
        y, width = place * row + 4, max(right - left, 2)
        drawn.append(tag("text", stay.name[:80], x=f"{LEFT:.1f}", y=f"{y + 10:.1f}"))
        drawn.append(tag("rect", x=f"{left:.1f}", y=f"{y + 14:.1f}", width=f"{width:.1f}", height="9", class_="bar"))
    return _picture(drawn, title, height=height)


def spark(values: Sequence[float | None], *, mark: str = "dot") -> Markup:
    """Draw the way of a number in a table's cell; the table itself says the numbers."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return Markup()
    most = max(known)
    step = 116 / (len(values) - 1)
    pairs = [(2 + place * step, 26 - 22 * value / most) for place, value in enumerate(values) if value is not None]
    return tag(
        "svg",
        tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in pairs), class_="now"),
        tag("circle", cx=f"{pairs[-1][0]:.1f}", cy=f"{pairs[-1][1]:.1f}", r="3.5", class_=mark),
        viewBox="0 0 122 30",
        class_="spark",
        aria_hidden="true",
    )


def _picture(drawn: Sequence[Markup], title: str, *, height: float = HEIGHT) -> Markup:
    return tag(
        "svg",
        tag("title", title),
        *drawn,
        viewBox=f"0 0 {WIDTH:g} {height:g}",
        role="img",
        xmlns="http://www.w3.org/2000/svg",
        aria_label=title,
    )


def _frame(top: float, ticks: Sequence[tuple[str, float]]) -> Markup:
    lines = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = _y(share * top, top)
        lines.append(tag("line", x1=f"{LEFT}", x2=f"{WIDTH - RIGHT}", y1=f"{y:.1f}", y2=f"{y:.1f}", class_="axis"))
        lines.append(tag("text", f"{share * top:g}", x=f"{LEFT - 6}", y=f"{y + 4:.1f}", text_anchor="end"))
    for place, (text, x) in enumerate(ticks):
        anchor = "start" if place == 0 else "end" if place == len(ticks) - 1 else "middle"
        lines.append(tag("text", text, x=f"{x:.1f}", y=f"{HEIGHT - 14}", text_anchor=anchor))
    return tag("g", lines)


def _dot(x: float, value: float, top: float, interval: tuple[float, float] | None, kind: str) -> Markup:
    y = _y(value, top)
    said = number(value)
    bar = Markup()
    if interval is not None:
        low, high = _y(interval[0], top), _y(interval[1], top)
        bar = tag(
            "path", d=f"M{x - 4:.1f},{low:.1f}h8M{x:.1f},{low:.1f}V{high:.1f}M{x - 4:.1f},{high:.1f}h8", class_="now"
        )
        said += f" ({number(interval[0])} to {number(interval[1])})"
    return tag(
        "g", tag("title", f"{said} TFLOPS"), bar, tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="4", class_=kind)
    )


def _x(value: float, first: float, last: float) -> float:
    share = (value - first) / (last - first) if last > first else 0.5
    return LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - RIGHT)


def _y(value: float, top: float) -> float:
    return TOP + (1 - max(value, 0.0) / top) * (HEIGHT - TOP - BOTTOM)


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 5, 8, 10 times a power of ten: its quarters are short numbers."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= value * 0.9999)


def _day(stamp: float) -> str:
    return f"{datetime.fromtimestamp(stamp, UTC):%Y-%m-%d %H:%M}"
