"""Every configuration that is shipped for Prometheus and Alertmanager is one that they accept."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

PROMETHEUS = Path(__file__).parents[2] / "deploy" / "prometheus"
ALERTMANAGER = PROMETHEUS.parent / "alertmanager" / "alertmanager.yml"
OPERATOR = PROMETHEUS / "scrape" / "operator.yml"
PLAIN = sorted(path for path in (PROMETHEUS / "scrape").glob("*.yml") if path != OPERATOR)


def check_config(path: Path) -> str:
    ran = subprocess.run(["promtool", "check", "config", path], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def without_kubernetes(content: Any) -> Any:
    """Debian's Prometheus is built without Kubernetes' discovery: everything but those two lines is checked."""
    for job in content["scrape_configs"]:
        if "kubernetes_sd_configs" in job:
            assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
            job["static_configs"] = [{"targets": ["pod:1"]}]
    return content


@pytest.mark.part("promtool")
@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.stem)
def test_prometheus_takes_every_scrape_configuration_with_the_rules_beside_it(path: Path, tmp_path: Path) -> None:
    scrape = tmp_path / "prometheus" / "scrape"
    shutil.copytree(PROMETHEUS, tmp_path / "prometheus")
    content = yaml.safe_load(path.read_text())
    (scrape / path.name).write_text(yaml.safe_dump(without_kubernetes(content)))
    said = check_config(scrape / path.name)
    if "rule_files" in content:
        assert len(re.findall(r"SUCCESS: \d+ rules found", said)) == len(list((PROMETHEUS / "rules").glob("*.yml")))


def snake(value: Any) -> Any:
    """The operator's keys are Prometheus' own in camel case."""
    if isinstance(value, dict):
        return {re.sub(r"([A-Z])", r"_\1", key).lower(): snake(inner) for key, inner in value.items()}
    return [snake(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.part("promtool")
def test_the_operators_monitor_is_the_plain_configuration_in_other_words(tmp_path: Path) -> None:
    monitor = yaml.safe_load(OPERATOR.read_text())
    assert (monitor["apiVersion"], monitor["kind"]) == ("monitoring.coreos.com/v1", "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (plain,) = yaml.safe_load((PROMETHEUS / "scrape" / "kubernetes.yml").read_text())["scrape_configs"]
    relabelings = snake(endpoint["relabelings"])
    assert [rule for rule in relabelings if rule["target_label"] != "job"] == [
        rule for rule in plain["relabel_configs"] if rule.get("action") != "keep"
    ]
    file = tmp_path / "operator.yml"
    job = {"job_name": "x", "scrape_interval": endpoint["interval"], "relabel_configs": relabelings}
    file.write_text(yaml.safe_dump({"scrape_configs": [job]}))
    check_config(file)


def test_every_scrape_job_has_mpswatch_in_its_name_because_an_alert_looks_for_it(alerts: dict[str, Any]) -> None:
    wanted = re.search(r'up\{job=~"([^"]*)"\}', alerts["MpswatchWatcherAbsent"]["expr"])
    assert wanted is not None
    for path in PLAIN:
        for job in yaml.safe_load(path.read_text())["scrape_configs"]:
            if path.stem != "federation":
                assert re.fullmatch(wanted[1], job["job_name"])


def test_a_federation_takes_what_the_rules_record_for_hosts_and_fleets(recording_rules: dict[str, Any]) -> None:
    content = yaml.safe_load((PROMETHEUS / "scrape" / "federation.yml").read_text())
    series, _ = content["scrape_configs"][0]["params"]["match[]"]
    pattern = re.search(r'__name__=~"([^"]*)"', series)
    assert pattern is not None
    taken = {name for name in recording_rules if re.fullmatch(pattern[1], name)}
    assert taken == {name for name in recording_rules if not name.startswith("instance_cap:")}


@pytest.mark.part("amtool")
def test_alertmanager_takes_its_configuration() -> None:
    ran = subprocess.run(["amtool", "check-config", ALERTMANAGER], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_alertmanager_names_only_alerts_that_exist(alerts: dict[str, Any]) -> None:
    for rule in yaml.safe_load(ALERTMANAGER.read_text())["inhibit_rules"]:
        for matcher in (*rule["source_matchers"], *rule["target_matchers"]):
            pattern = re.fullmatch(r'alertname!?=~?"([^"]*)"', matcher)
            assert pattern is not None
            assert any(re.fullmatch(pattern[1], name) for name in alerts), matcher
