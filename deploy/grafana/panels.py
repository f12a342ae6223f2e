"""The parts that both dashboards are made of. Every panel gets a title, a description, a unit and $datasource."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

DATASOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24


def target(expr: str, legend: str = "", *, table: bool = False, instant: bool = False, ref: str = "A") -> Json:
    """One query; `table` ones are instant."""
    return {
        "datasource": DATASOURCE,
        "expr": expr,
        "legendFormat": legend or "__auto",
        "refId": ref,
        "instant": table or instant,
        "range": not (table or instant),
        "format": "table" if table else "time_series",
    }


def _panel(kind: str, title: str, description: str, targets: list[Json], *, width: int, height: int) -> Json:
    for number, query in enumerate(targets):
        query["refId"] = chr(ord("A") + number)
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "targets": targets,
        "gridPos": {"w": width, "h": height, "x": 0, "y": 0},
    }


def _thresholds(*steps: tuple[float | None, str]) -> Json:
    return {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in steps]}


def stat(
    title: str,
    description: str,
    unit: str,
    expr: str,
    legend: str = "",
    *,
    bad_from: float | None = None,
    words: dict[str, tuple[str, str]] | None = None,
    by_name: bool = False,
    width: int = 4,
) -> Json:
    """One number a series, red from `bad_from` on; `words` maps values to (text, colour); `by_name`: its legend."""
    steps = [(None, "green")] if bad_from is None else [(None, "green"), (bad_from, "red")]
    mappings: list[Json] = []
    if words:
        options = {
            value: {"text": text, "color": color, "index": at}
            for at, (value, (text, color)) in enumerate(words.items())
        }
        mappings = [{"type": "value", "options": options}]
    panel = _panel("stat", title, description, [target(expr, legend, instant=True)], width=width, height=4)
    panel["fieldConfig"] = {
        "defaults": {"unit": unit, "thresholds": _thresholds(*steps), "mappings": mappings},
        "overrides": [],
    }
    panel["options"] = {
        "reduceOptions": {"calcs": ["lastNotNull"], "values": False, "fields": ""},
        "orientation": "auto",
        "textMode": "name" if by_name else "auto",
        "wideLayout": True,
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "showPercentChange": False,
        "percentChangeColorMode": "standard",
    }
    return panel


def timeseries(
    title: str,
    description: str,
    unit: str,
    *targets: Json,
    width: int = 12,
    height: int = 8,
    stacked: bool = False,
    steps: bool = False,
    minimum: float | None = 0,
    maximum: float | None = None,
) -> Json:
    """Lines over time. `steps` where a value holds until the next one; gaps stay gaps: unknown is not a line."""
    panel = _panel("timeseries", title, description, list(targets), width=width, height=height)
    custom = {
        "drawStyle": "line",
        "lineInterpolation": "stepAfter" if steps else "linear",
        "lineWidth": 1,
        "fillOpacity": 20 if stacked else 0,
        "showPoints": "auto",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
    }
    limits = {key: value for key, value in (("min", minimum), ("max", maximum)) if value is not None}
    panel["fieldConfig"] = {"defaults": {"unit": unit, "custom": custom, **limits}, "overrides": []}
    panel["options"] = {
        "legend": {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": ["lastNotNull"]},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return panel


def bars(title: str, description: str, unit: str, expr: str, legend: str, *, width: int = 12, height: int = 8) -> Json:
    """The newest value of each series as a bar."""
    panel = _panel("bargauge", title, description, [target(expr, legend, instant=True)], width=width, height=height)
    panel["fieldConfig"] = {
        "defaults": {
            "unit": unit,
            "min": 0,
            "color": {"mode": "continuous-GrYlRd"},
            "thresholds": _thresholds((None, "green")),
        },
        "overrides": [],
    }
    panel["options"] = {
        "reduceOptions": {"calcs": ["lastNotNull"], "values": False, "fields": ""},
        "orientation": "horizontal",
        "displayMode": "basic",
        "valueMode": "color",
        "namePlacement": "auto",
        "showUnfilled": True,
        "sizing": "auto",
        "minVizWidth": 8,
        "minVizHeight": 16,
        "maxVizHeight": 300,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False, "calcs": []},
    }
    return panel


def table(
    title: str,
    description: str,
    columns: dict[str, tuple[str, str]],
    labels: list[str],
    *,
    width: int = 12,
    height: int = 8,
    link: Json | None = None,
) -> Json:
    """Rows by label; `columns` maps a heading to (expression, unit). Labels come first.

    The panel's own unit is the first column's; the others override it.
    """
    targets = [target(expr, table=True) for expr, _ in columns.values()]
    panel = _panel("table", title, description, targets, width=width, height=height)
    overrides: list[Json] = []
    renamed = {}
    for number, (heading, (_, unit)) in enumerate(columns.items()):
        value = "Value" if len(columns) == 1 else f"Value #{chr(ord('A') + number)}"
        renamed[value] = heading
        overrides.append(
            {"matcher": {"id": "byName", "options": heading}, "properties": [{"id": "unit", "value": unit}]}
        )
    if link is not None:
        overrides.append(
            {"matcher": {"id": "byName", "options": labels[0]}, "properties": [{"id": "links", "value": [link]}]}
        )
    panel["fieldConfig"] = {
        "defaults": {
            "unit": next(iter(columns.values()))[1],
            "custom": {"align": "auto", "inspect": False, "cellOptions": {"type": "auto"}},
        },
        "overrides": overrides,
    }
    panel["options"] = {"showHeader": True, "cellHeight": "sm", "frameIndex": 0}
    order = {name: at for at, name in enumerate([*labels, *renamed])}
    keep = "^(" + "|".join([*labels, *(value.replace("#", "\\#") for value in renamed)]) + ")$"
    panel["transformations"] = [
        *([{"id": "merge", "options": {}}] if len(columns) > 1 else []),
        {"id": "filterFieldsByName", "options": {"include": {"pattern": keep}}},
        {"id": "organize", "options": {"excludeByName": {}, "indexByName": order, "renameByName": renamed}},
    ]
    return panel


def row(title: str) -> Json:
    return {
        "type": "row",
        "title": title,
        "collapsed": False,
        "panels": [],
        "gridPos": {"w": WIDTH, "h": 1, "x": 0, "y": 0},
    }


def query_variable(name: str, query: str, description: str, *, all_value: str = ".+") -> Json:
    return {
        "type": "query",
        "name": name,
        "label": name.title(),
        "description": description,
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": "StandardVariableQuery"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": all_value,
        "current": {"text": ["All"], "value": ["$__all"], "selected": True},
    }


JOB = query_variable("job", "label_values(mpswatch_build_info, job)", "Scrape jobs that have mpswatch.")
INSTANCE = query_variable(
    "instance", 'label_values(mpswatch_build_info{job=~"$job"}, instance)', "Hosts with mpswatch."
)
CLUSTER = query_variable(
    "cluster",
    'label_values(mpswatch_build_info{job=~"$job"}, cluster)',
    "The cluster label of the targets; all of them where it is not set.",
    all_value=".*",
)


def dashboard(uid: str, title: str, description: str, *, variables: list[Json], panels: list[Json]) -> Json:
    """The whole, with panels laid out from left to right in rows as high as their first."""
    x = y = height = 0
    for number, panel in enumerate(panels, start=1):
        place = panel["gridPos"]
        if x + place["w"] > WIDTH:
            x, y = 0, y + height
        if x == 0:
            height = place["h"]
        place["x"], place["y"] = x, y
        panel["id"] = number
        x += place["w"]
    datasource = {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "description": "The Prometheus that scrapes mpswatch and has its recording rules.",
        "query": "prometheus",
    }
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["mpswatch"],
        "editable": False,
        "schemaVersion": 39,
        "version": 1,
        "graphTooltip": 1,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "links": [
            {
                "type": "dashboards",
                "title": "All mpswatch dashboards",
                "tags": ["mpswatch"],
                "asDropdown": False,
                "icon": "external link",
                "includeVars": True,
                "keepTime": True,
                "targetBlank": False,
                "tooltip": "",
                "url": "",
            }
        ],
        "templating": {"list": [datasource, *variables]},
        "annotations": {"list": []},
        "panels": panels,
    }
