"""Dashboards against the schema that Grafana publishes (schema/README.md says where it comes from)."""

from __future__ import annotations

import copy
import functools
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

SCHEMA = Path(__file__).parent / "schema"

Json = dict[str, Any]


@functools.cache
def schema(name: str) -> jsonschema.Draft7Validator:
    content = json.loads((SCHEMA / f"{name}.json").read_text())
    jsonschema.Draft7Validator.check_schema(content)
    return jsonschema.Draft7Validator(content)


def faults(dashboard: Json) -> list[str]:
    """Where a dashboard, its panels' options and their custom field settings are not what Grafana publishes."""
    found = [f"{error.json_path} {error.message[:200]}" for error in schema("dashboard").iter_errors(dashboard)]
    for panel in dashboard["panels"]:
        for part, what in (("options", panel.get("options")), ("custom", _custom(panel))):
            if what is not None and (SCHEMA / f"{panel['type']}.{part}.json").exists():
                errors = schema(f"{panel['type']}.{part}").iter_errors(what)
                found += [f"{panel['title']}: {part} {error.json_path} {error.message}" for error in errors]
    return found


def _custom(panel: Json) -> Any:
    return panel.get("fieldConfig", {}).get("defaults", {}).get("custom")


def test_every_dashboard_is_what_grafana_publishes(dashboard: Json) -> None:
    assert faults(dashboard) == []


def test_every_kind_of_panel_has_its_options_checked(dashboard: Json) -> None:
    kinds = {panel["type"] for panel in dashboard["panels"]} - {"row"}
    assert kinds <= {path.name.partition(".")[0] for path in SCHEMA.glob("*.options.json")}


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("title",), 5),
        (("panels", 1, "gridPos", "w"), "wide"),
        (("panels", 1, "fieldConfig", "defaults", "unit"), 1),
        (("panels", 1, "options", "textMode"), "loud"),
        (("panels", 1, "datasource"), "prometheus"),
        (("templating", "list", 1, "refresh"), "often"),
        (("time",), {"from": "now-6h"}),
        (("invented",), True),
        (("panels", 1, "invented"), True),
    ],
)
def test_a_wrong_dashboard_is_refused(dashboard: Json, place: tuple[str | int, ...], value: Any) -> None:
    """The negative test: a schema made from a wrong path accepts everything."""
    wrong: Any = copy.deepcopy(dashboard)
    inside = wrong
    for step in place[:-1]:
        inside = inside[step]
    inside[place[-1]] = value
    assert faults(wrong) != []
