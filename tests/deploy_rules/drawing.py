"""A dashboard's panels as one SVG, drawn from what Prometheus answered: Grafana cannot be had for the tests."""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Callable
from html import escape
from typing import Any

Json = dict[str, Any]
Answer = tuple[Json, list[tuple[float, float]]]  # labels, points (time, value)

COLUMN, ROW, GAP = 50, 30, 4
COLOURS = ("#3274d9", "#e0752d", "#299c46", "#c4162a", "#8f3bb8", "#b8860b", "#0a9396", "#7c2529", "#4b5f7a", "#d683ce")
STYLE = (
    "text{font-family:Inter,Helvetica,Arial,sans-serif;fill:#24292e;font-size:11px}"
    ".title{font-weight:600;font-size:12px}.faint{fill:#6a737d;font-size:10px}.big{font-size:26px;font-weight:600}"
    ".row{font-weight:600;font-size:13px}"
)


SCALED: dict[str, tuple[tuple[tuple[str, float], ...], str]] = {
    "bytes": ((("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 1024.0)), "B"),
    "s": ((("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 0.001)), "s"),
    "hertz": ((("GHz", 1e9), ("MHz", 1e6), ("kHz", 1e3)), "Hz"),
}
"""Larger units of a unit, each with its size, and what the rest is called."""


def shown(value: float, unit: str) -> str:
    """A value as a person reads it."""
    if unit in SCALED:
        steps, rest = SCALED[unit]
        return next((f"{value / size:.3g} {name}" for name, size in steps if abs(value) >= size), f"{value:.0f} {rest}")
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "tflops":
        return f"{value:.3g} TFLOP/s" if value >= 1 or value == 0 else f"{1000 * value:.3g} GFLOP/s"
    if unit == "bool_yes_no":
        return "yes" if value else "no"
    return f"{value:g}" if abs(value) < 1e5 else f"{value:.3g}"


def legend(target: Json, labels: Json) -> str:
    text = str(target["legendFormat"])
    if text == "__auto":
        return ", ".join(f"{key}={value}" for key, value in labels.items() if key != "__name__")
    for key, value in labels.items():
        text = text.replace("{{" + key + "}}", str(value))
    return re.sub(r"\{\{\w+\}\}", "", text).strip()


def _text(x: float, y: float, text: str, kind: str = "", *, anchor: str = "start", extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}"{extra}>{escape(text)}</text>'


def _clip(text: str, width: float) -> str:
    room = max(int(width / 6.4), 4)
    return text if len(text) <= room else text[: room - 1] + "…"


def _stat(panel: Json, answers: list[list[Answer]], width: float, height: float) -> list[str]:
    found = answers[0]
    if not found:
        return [_text(width / 2, height / 2 + 12, "no data", "faint", anchor="middle")]
    defaults, parts = panel["fieldConfig"]["defaults"], []
    each = width / len(found)
    size = "" if len(found) == 1 else f";font-size:{max(26 // len(found), 9)}px"
    for at, (labels, points) in enumerate(found):
        value = points[-1][1]
        colour = "#299c46"
        for step in defaults["thresholds"]["steps"]:
            if step["value"] is None or value >= step["value"]:
                colour = {"green": "#299c46", "red": "#c4162a"}[step["color"]]
        text = shown(value, defaults["unit"])
        for mapping in defaults.get("mappings", ()):
            text = mapping["options"].get(f"{value:g}", {}).get("text", text)
        if panel["options"]["textMode"] == "name":
            text = legend(panel["targets"][0], labels)
        parts.append(
            _text(
                each * (at + 0.5), height / 2 + 18, text, "big", anchor="middle", extra=f' style="fill:{colour}{size}"'
            )
        )
    return parts


def _bars(panel: Json, answers: list[list[Answer]], width: float, height: float) -> list[str]:
    found = answers[0][:10]
    unit = panel["fieldConfig"]["defaults"]["unit"]
    most = max((points[-1][1] for _, points in found), default=1) or 1
    each = (height - 30) / max(len(found), 1)
    label, parts = min(0.42 * width, 230), []
    for at, (labels, points) in enumerate(found):
        value, y = points[-1][1], 26 + at * each
        long = (width - label - 110) * value / most
        parts += [
            _text(label - 4, y + each / 2 + 4, _clip(legend(panel["targets"][0], labels), label), anchor="end"),
            f'<rect x="{label:.1f}" y="{y + 2:.1f}" width="{long:.1f}" height="{each - 4:.1f}" fill="{COLOURS[0]}"/>',
            _text(label + long + 4, y + each / 2 + 4, shown(value, unit)),
        ]
    return parts


def _lines(panel: Json, answers: list[list[Answer]], width: float, height: float) -> list[str]:
    series = [
        (legend(target, labels), points)
        for target, found in zip(panel["targets"], answers, strict=True)
        for labels, points in found
    ]
    everything = [point for _, points in series for point in points]
    if not everything:
        return [_text(width / 2, height / 2, "no data", "faint", anchor="middle")]
    defaults = panel["fieldConfig"]["defaults"]
    first, last = min(at for at, _ in everything), max(at for at, _ in everything)
    low = defaults.get("min", min(value for _, value in everything))
    high = defaults.get("max", max(value for _, value in everything) * 1.08) or 1
    rows = min(len(series), 6)
    left, right, top, bottom = 70, width - 8, 28, height - 24 - 13 * math.ceil(rows / 2)
    x_of = lambda at: left + (right - left) * (at - first) / ((last - first) or 1)  # noqa: E731  # two scales
    y_of = lambda value: bottom - (bottom - top) * (value - low) / ((high - low) or 1)  # noqa: E731
    parts = []
    for tick in range(5):
        value = low + (high - low) * tick / 4
        y = y_of(value)
        parts.append(f'<line x1="{left}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e1e4e8"/>')
        parts.append(_text(left - 5, y + 4, shown(value, defaults["unit"]), "faint", anchor="end"))
    for at in (first, last):
        clock = time.strftime("%H:%M:%S", time.gmtime(at))
        parts.append(_text(x_of(at), bottom + 12, clock, "faint", anchor="start" if at == first else "end"))
    steps = defaults["custom"]["lineInterpolation"] == "stepAfter"
    for number, (name, points) in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<path d="{_path(points, x_of, y_of, steps)}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        if number < rows:
            x, y = left + (number % 2) * (right - left) / 2, height - 8 - 13 * (math.ceil(rows / 2) - 1 - number // 2)
            parts.append(f'<rect x="{x:.1f}" y="{y - 7:.1f}" width="10" height="4" fill="{colour}"/>')
            parts.append(_text(x + 14, y, _clip(name, (right - left) / 2 - 14), "faint"))
    return parts


def _path(
    points: list[tuple[float, float]], x_of: Callable[[float], float], y_of: Callable[[float], float], steps: bool
) -> str:
    """A line with gaps where points are missing: unknown is not a line."""
    between = min((b[0] - a[0] for a, b in itertools.pairwise(points)), default=1)
    path, previous = "", None
    for at, value in points:
        x, y = x_of(at), y_of(value)
        if previous is None or at - previous > 1.5 * between:
            path += f"M{x:.1f} {y:.1f}h0.5"
        else:
            path += (f"H{x:.1f}V{y:.1f}") if steps else f"L{x:.1f} {y:.1f}"
        previous = at
    return path


def _table(panel: Json, answers: list[list[Answer]], width: float, height: float) -> list[str]:
    organize = panel["transformations"][-1]["options"]
    renamed = organize["renameByName"]
    order = sorted(organize["indexByName"], key=organize["indexByName"].get)
    units = {
        override["matcher"]["options"]: override["properties"][0] for override in panel["fieldConfig"]["overrides"]
    }
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    keys = [name for name in order if name not in renamed]
    for found, heading in zip(answers, renamed.values(), strict=True):
        for labels, points in found:
            key = tuple(str(labels.get(name, "")) for name in keys)
            row = rows.setdefault(key, dict(zip(keys, key, strict=True)))
            row[heading] = shown(points[-1][1], str(units[heading]["value"]))
    columns = [renamed.get(name, name) for name in order]
    each, parts = (width - 16) / len(columns), []
    for at, name in enumerate(columns):
        parts.append(_text(8 + at * each, 34, name, "faint"))
        for line, row in enumerate(list(rows.values())[: int((height - 44) / 16)]):
            parts.append(_text(8 + at * each, 52 + 16 * line, _clip(row.get(name, ""), each - 10)))
    return parts


_KINDS = {"stat": _stat, "bargauge": _bars, "timeseries": _lines, "table": _table}


def draw(dashboard: Json, ask: Callable[[Json], list[Answer]], *, until_row: str | None, note: str) -> str:
    """The dashboard down to the row named `until_row` (all of it where None); `ask` answers one target."""
    parts, lowest = [], 0.0
    for panel in dashboard["panels"]:
        if panel["type"] == "row" and panel["title"] == until_row:
            break
        place = panel["gridPos"]
        x, y = place["x"] * COLUMN, 40 + place["y"] * ROW
        width, height = place["w"] * COLUMN - GAP, place["h"] * ROW - GAP
        lowest = max(lowest, y + height)
        if panel["type"] == "row":
            parts.append(_text(x + 4, y + 18, panel["title"], "row"))
            continue
        answers = [ask(target) for target in panel["targets"]]
        inside = "".join(_KINDS[panel["type"]](panel, answers, width, height))
        parts.append(
            f'<g transform="translate({x} {y})">'
            f'<rect width="{width}" height="{height}" rx="3" fill="#fff" stroke="#d8dce1"/>'
            + _text(8, 17, panel["title"], "title")
            + inside
            + "</g>"
        )
    width = 24 * COLUMN + 8
    head = _text(4, 22, dashboard["title"], "row") + _text(width - 8, 22, note, "faint", anchor="end")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {lowest + 8:.0f}" width="{width}" role="img">'
        f"<title>{escape(dashboard['title'])}</title><style>{STYLE}</style>"
        f'<rect width="100%" height="100%" fill="#f4f5f7"/>'
        f'<g transform="translate(4 4)">{head}{"".join(parts)}</g></svg>\n'
    )
