"""The report's pictures as SVG files that stand alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mpswatch.evidence.matrices import matrices
from mpswatch.evidence.quantities import WORDS
from mpswatch.markup.html import Markup, style, tag
from mpswatch.markup.matrix import matrix_picture
from mpswatch.markup.style import CSS
from mpswatch.report.gathering import InterferenceReport, Period, SeriesReport
from mpswatch.report.series import curve_of, curve_title, way_of, way_title

_LINE = 17.0
_SIZE = re.compile(r' viewBox="0 0 ([0-9.]+) ([0-9.]+)"')


def pictures(period: Period) -> dict[str, str]:
    """Give each picture as a file of its own, by file name: light, with its style and a legend inside, loading nothing.

    The legend says what it shows, of which GPU and when, and that it is simulated, where it is.
    """
    found: dict[str, str] = {}
    for place, one in enumerate(period.series, start=1):
        for name, picture in _of_series(one):
            found[_plain(f"{place:02}-{name}") + ".svg"] = picture
    for neighbours in period.interferences:
        for name, picture in _of_neighbours(neighbours):
            found[_plain(f"interference-{neighbours.daemon}-{name}") + ".svg"] = picture
    return found


def _of_series(one: SeriesReport) -> Iterator[tuple[str, str]]:
    series = one.series
    work = f"plan {series.plan}, {series.dtype} {series.op} {series.size}"
    where = _where(series.gpu_uuid, series.daemon, series.host, simulated=series.simulated) + f", {work}"
    first, last = one.runs[0].started, one.runs[-1].started
    when = f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
    for cap in one.caps:
        name = f"{series.daemon or 'daemon'}-{series.plan}-{cap.cap}-{WORDS[cap.quantity]}"
        yield name, _alone(way_of(one, cap), way_title(cap), when, where)
    for quantity in one.quantities:
        yield f"curve-{WORDS[quantity]}", _alone(curve_of(one, quantity), curve_title(one, quantity), when, where)


def _of_neighbours(one: InterferenceReport) -> Iterator[tuple[str, str]]:
    for document in one.documents:
        where = _where(one.gpu_uuid, one.daemon, one.host, simulated=document.simulated)
        when = f"{document.run_id}, {document.finished_at:%Y-%m-%d %H:%M:%S} UTC"
        for number, matrix in enumerate(matrices(document), start=1):
            title = f"share of its rate that the victim (row) loses, {matrix.title}"
            yield f"{document.run_id}-{number}", _alone(matrix_picture(matrix, title=title), title, when, where)


def _where(uuid: str, daemon: str, host: str, *, simulated: bool) -> str:
    short = "-".join(uuid.split("-")[:2]) or "GPU not recorded"
    return ("SIMULATED, " if simulated else "") + f"{short} under {daemon or 'daemon not recorded'} on {host}"


def _plain(name: str) -> str:
    return "".join(char if char.isalnum() or char in "-." else "-" for char in name)


def _alone(picture: Markup, *legend: str) -> str:
    """Put a picture under its legend, on paper of its own."""
    size = _SIZE.search(picture)
    width, height = (float(size[1]), float(size[2])) if size is not None else (0.0, 0.0)
    wide, high = max(width, 640.0), height + _LINE * len(legend) + 10
    light = CSS.split("@media", 1)[0]
    of_pictures = "\n".join(line for line in CSS.splitlines() if line.startswith("svg"))
    inner = picture.replace("<svg", f'<svg y="{high - height:g}" width="{width:g}" height="{height:g}"', 1)
    whole = tag(
        "svg",
        tag("title", "; ".join(legend)),
        style(light + of_pictures),
        tag("rect", width=f"{wide:g}", height=f"{high:g}", class_="paper"),
        [tag("text", line, x="6", y=f"{_LINE * (number + 1):g}") for number, line in enumerate(legend)],
        Markup(inner),
        viewBox=f"0 0 {wide:g} {high:g}",
        xmlns="http://www.w3.org/2000/svg",
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{whole}\n'
