"""What the chart carries along is what deploy/ has, byte for byte; and the plain manifests are the chart's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COPIES = {
    "rules": (ROOT / "deploy/prometheus/rules", "*.yml"),
    "dashboards": (ROOT / "deploy/grafana/dashboards", "*.json"),
}


@pytest.mark.parametrize("folder", COPIES)
def test_the_charts_files_equal_the_canonical_ones(chart, folder):
    source, pattern = COPIES[folder]
    canonical = {path.name: path.read_bytes() for path in source.glob(pattern)}
    assert canonical
    carried = {path.name: path.read_bytes() for path in (chart / "files" / folder).iterdir()}
    assert carried == canonical, "run deploy/helm/refresh"


@pytest.mark.part("helm")
def test_rules_arrive_unchanged_but_for_the_runbooks_address(render):
    rendered = render({"prometheusRule": {"enabled": True}})
    groups = [group for rule in rendered if rule["kind"] == "PrometheusRule" for group in rule["spec"]["groups"]]
    source = ROOT / "deploy/prometheus/rules"
    expected = [group for path in sorted(source.glob("*.yml")) for group in yaml.safe_load(path.read_text())["groups"]]
    assert groups == expected

    moved = render({"prometheusRule": {"enabled": True, "runbookUrl": "https://runbooks.example/mpswatch"}})
    urls = {
        rule["annotations"]["runbook_url"].split("#")[0]
        for document in moved
        if document["kind"] == "PrometheusRule"
        for group in document["spec"]["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    assert urls == {"https://runbooks.example/mpswatch"}


@pytest.mark.part("helm")
def test_dashboards_arrive_unchanged(render):
    rendered = render({"dashboards": {"enabled": True}})
    carried = {
        name: text.strip()
        for document in rendered
        if document["kind"] == "ConfigMap" and document["metadata"]["labels"].get("grafana_dashboard") == "1"
        for name, text in document["data"].items()
    }
    source = ROOT / "deploy/grafana/dashboards"
    assert carried == {path.name: path.read_text().strip() for path in source.glob("*.json")}


@pytest.mark.part("helm")
def test_the_plain_manifests_are_what_the_chart_renders(tmp_path):
    done = subprocess.run(
        [ROOT / "deploy/helm/refresh", str(tmp_path)], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    fresh = {path.name: path.read_text() for path in tmp_path.glob("*.yaml")}
    plain = {path.name: path.read_text() for path in (ROOT / "deploy/kubernetes").glob("*.yaml")}
    assert plain == fresh, "run deploy/helm/refresh"


def test_the_plain_manifests_hold_nothing_of_helms():
    for path in (ROOT / "deploy/kubernetes").glob("*.yaml"):
        text = path.read_text()
        assert "helm.sh/" not in text, path.name
        assert "managed-by" not in text, path.name
