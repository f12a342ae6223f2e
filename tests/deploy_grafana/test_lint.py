"""The rules of grafana's dashboard linter (github.com/grafana/dashboard-linter), each by its name there.

The linter itself cannot be had for these tests; its rules are few and are held here one by one.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mpswatch.metrics.table import BY_NAME

ROOT = Path(__file__).parents[2]
GRAFANA = ROOT / "deploy" / "grafana"
UNITS = {"none", "short", "bytes", "s", "percentunit", "tflops", "hertz", "bool_yes_no"}  # of Grafana's, those used
RECORDED = {
    rule["record"]
    for group in yaml.safe_load((ROOT / "deploy/prometheus/rules/mpswatch-recording.yml").read_text())["groups"]
    for rule in group["rules"]
}
NOT_OURS = {"ALERTS", "process_resident_memory_bytes", "process_cpu_seconds_total"}
VARIABLES = {"$job": ".+", "$instance": ".+", "$cluster": ".*", "$__rate_interval": "5m"}

Json = dict[str, Any]


def panels(dashboard: Json) -> list[Json]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def targets(dashboard: Json) -> Iterator[tuple[str, str]]:
    """Each panel's title with one of its expressions."""
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def variable(dashboard: Json, name: str) -> Json:
    return next(found for found in dashboard["templating"]["list"] if found["name"] == name)


def filled(expression: str) -> str:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def test_template_datasource_rule(dashboard: Json) -> None:
    (source,) = [found for found in dashboard["templating"]["list"] if found["type"] == "datasource"]
    assert (source["name"], source["label"], source["query"]) == ("datasource", "Data source", "prometheus")


@pytest.mark.parametrize("name", ["job", "instance"])
def test_template_job_rule_and_template_instance_rule(dashboard: Json, name: str) -> None:
    found = variable(dashboard, name)
    assert found["type"] == "query"
    assert found["label"] == name.title()
    assert found["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert found["multi"] is True
    assert found["allValue"] == ".+"


def test_template_on_time_change_reload_rule(dashboard: Json) -> None:
    assert {found["refresh"] for found in dashboard["templating"]["list"] if found["type"] == "query"} == {2}


def test_template_label_promql_rule(dashboard: Json) -> None:
    for found in dashboard["templating"]["list"]:
        if found["type"] == "query":
            asked = re.fullmatch(r"label_values\((\w+)(\{.*\})?, (\w+)\)", found["query"]["query"])
            assert asked is not None
            assert asked[1] in BY_NAME


def test_template_uneditable_rule(dashboard: Json) -> None:
    assert dashboard["editable"] is False


def test_panel_datasource_rule(dashboard: Json) -> None:
    for panel in panels(dashboard):
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])


def test_panel_title_description_rule(dashboard: Json) -> None:
    for panel in panels(dashboard):
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
    titles = [panel["title"] for panel in panels(dashboard)]
    assert len(set(titles)) == len(titles), "panels are told apart by their titles"


def test_panel_units_rule(dashboard: Json) -> None:
    for panel in panels(dashboard):
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, panel["title"]


def test_panel_no_targets_rule(dashboard: Json) -> None:
    assert all(panel["targets"] for panel in panels(dashboard))


def test_target_rate_interval_rule(dashboard: Json) -> None:
    for title, expression in targets(dashboard):
        assert all(window == "[$__rate_interval]" for window in re.findall(r"\[[^\]]*\]", expression)), title


def test_target_counter_agg_rule(dashboard: Json) -> None:
    for title, expression in targets(dashboard):
        for counter in re.finditer(r"\w+_total\b", expression):
            assert re.search(r"(rate|increase)\($", expression[: counter.start()]), title


def test_target_job_rule_and_target_instance_rule(dashboard: Json) -> None:
    for title, expression in targets(dashboard):
        for selector in re.findall(r"\{[^}]*\}", expression):
            assert 'job=~"$job"' in selector, title
            assert 'instance=~"$instance"' in selector, title
        names = re.findall(r"(?<![\w:])(?:mpswatch_|process_|ALERTS|\w+:mpswatch)[\w:]*", expression)
        assert len(names) == len(re.findall(r"\{", expression)), f"{title}: a selector without matchers"


@pytest.mark.part("promtool")
def test_target_promql_rule(dashboard: Json, tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:expression:{number}", "expr": filled(expression)}
        for number, (_, expression) in enumerate(targets(dashboard))
    ]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    ran = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{len(rules)} rules found" in ran.stdout


def test_every_metric_that_a_panel_names_is_published(dashboard: Json) -> None:
    for title, expression in targets(dashboard):
        for name in re.findall(r"([a-zA-Z_:][\w:]*)\s*\{", expression):
            assert name in BY_NAME or name in RECORDED or name in NOT_OURS, f"{title}: {name}"
            if name in BY_NAME:
                selectors = re.findall(re.escape(name) + r"\{([^}]*)\}", expression)
                labels = {label for selector in selectors for label in re.findall(r"(\w+)=", selector)}
                assert labels <= {"job", "instance", "cluster", *BY_NAME[name].labels}, title


def test_the_files_are_what_the_code_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(GRAFANA))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    spec = importlib.util.spec_from_file_location("deploy_grafana_build", GRAFANA / "build.py")
    assert spec is not None
    assert spec.loader is not None
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    written = {path.name: path.read_text() for path in (GRAFANA / "dashboards").glob("*.json")}
    assert build.texts() == written, "run: python deploy/grafana/build.py"
    for name in ("panels", "host", "fleet"):
        sys.modules.pop(name, None)


def test_panels_do_not_overlap_and_have_ids_of_their_own(dashboard: Json) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken.get((x, y))}"
                taken[x, y] = panel["title"]
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)


def test_dashboards_have_uids_of_their_own_and_links_point_to_them() -> None:
    content = {path.stem: json.loads(path.read_text()) for path in (GRAFANA / "dashboards").glob("*.json")}
    assert {name: dashboard["uid"] for name, dashboard in content.items()} == {name: name for name in content}
    linked = set(re.findall(r"/d/([\w-]+)", json.dumps(list(content.values()))))
    assert linked <= content.keys()
    assert linked


def test_provisioning_names_a_prometheus_and_the_folder_of_dashboards() -> None:
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert source["type"] == "prometheus"
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/mpswatch.yml").read_text())["providers"]
    assert provider["type"] == "file"
    assert provider["options"]["path"].endswith("dashboards/mpswatch")
