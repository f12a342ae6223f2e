"""What rules name exists, recordings record what they say, and scaling changes durations and nothing else."""

from __future__ import annotations

import re
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from mpswatch.metrics.table import BY_NAME

ROOT = Path(__file__).parents[2]
RULES = sorted((ROOT / "deploy" / "prometheus" / "rules").glob("*.yml"))
OF_THE_TARGET = {"job", "instance", "cluster"}


def unpublished(expression: str, promql: Any, recorded: set[str]) -> set[str]:
    """The metrics and labels in an expression that nobody publishes."""
    wrong = set()
    labels = set(OF_THE_TARGET)
    for selector in promql.selectors(expression):
        if selector.name in recorded:
            labels |= {"daemon", "uuid", "plan", "cap", "name"}
            continue
        if selector.name == "up":
            continue
        if selector.name not in BY_NAME:
            wrong.add(selector.name)
            continue
        known = OF_THE_TARGET | set(BY_NAME[selector.name].labels)
        labels |= known
        wrong |= {f"{selector.name}{{{label}}}" for label, _, _ in selector.matchers if label not in known}
    return wrong | {label for label in promql.clause_labels(expression) if label not in labels}


def test_every_metric_and_label_that_a_rule_names_is_published(
    alerts: dict[str, Any], recording_rules: dict[str, Any], promql: Any
) -> None:
    for name, rule in {**alerts, **recording_rules}.items():
        assert unpublished(rule["expr"], promql, set(recording_rules)) == set(), name


def test_a_rule_that_names_a_metric_or_label_nobody_publishes_is_found(promql: Any) -> None:
    assert unpublished("max_over_time(mpswatch_alien_tenants[3m]) > 0", promql, set()) == {"mpswatch_alien_tenants"}
    assert unpublished('sum(mpswatch_mps_up{pid="1"}) == 0', promql, set()) == {"mpswatch_mps_up{pid}"}
    assert unpublished("sum by (gpu) (mpswatch_mps_up) == 0", promql, set()) == {"gpu"}


def test_an_alert_shows_no_label_that_its_expression_does_not_have(
    alerts: dict[str, Any], recording_rules: dict[str, Any], promql: Any
) -> None:
    for name, rule in alerts.items():
        shown = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        had = set(OF_THE_TARGET)
        for selector in promql.selectors(rule["expr"]):
            had |= set(BY_NAME[selector.name].labels) if selector.name in BY_NAME else set()
        assert shown <= had, name


@pytest.mark.part("promtool")
def test_recordings_record_what_they_say() -> None:
    ran = subprocess.run(
        ["promtool", "test", "rules", Path(__file__).parent / "recording.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_recording_is_tested(recording_rules: dict[str, Any], promql: Any) -> None:
    content = yaml.safe_load((Path(__file__).parent / "recording.yml").read_text())
    asked = {
        selector.name
        for case in content["tests"]
        for test in case["promql_expr_test"]
        for selector in promql.selectors(test["expr"])
    }
    assert asked == set(recording_rules)


def test_fleet_rules_leave_rehearsals_out_at_the_source(recording_rules: dict[str, Any], promql: Any) -> None:
    for name, rule in recording_rules.items():
        if name == "instance_cap:mpswatch_cap_tflops:median7d":
            continue  # a host's own history, read by an alert on that host
        read = {selector.name for selector in promql.selectors(rule["expr"])} - set(recording_rules)
        if read:
            assert "unless on (job, instance) mpswatch_simulated == 1" in rule["expr"], name


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_scaling_multiplies_every_duration_and_changes_nothing_else(path: Path, scaling: Any) -> None:
    factor = Fraction(1, 60)
    before = yaml.safe_load(path.read_text())
    after = scaling.scaled(before, factor)
    seen = 0
    for place, old, new in scaling.differences(before, after):
        field = place.rsplit("/", 1)[1]
        assert field in {"for", "keep_firing_for", "interval", "expr"}, place
        if field == "expr":
            old_text, old_durations = scaling.durations_apart(old)
            new_text, new_durations = scaling.durations_apart(new)
            assert new_text == old_text
        else:
            old_durations, new_durations = [scaling.milliseconds(old)], [scaling.milliseconds(new)]
        assert new_durations == [duration * factor for duration in old_durations]
        seen += len(old_durations)
    assert seen == len(re.findall(r"[\[ :]\d+(?:ms|[smhdwy])\b", re.sub(r"#.*", "", path.read_text())))


def test_scaling_refuses_what_would_not_come_out_whole(scaling: Any) -> None:
    with pytest.raises(ValueError, match="whole number"):
        scaling.scaled_duration("1s", Fraction(1, 7000))
    assert scaling.scaled_expression("rate(x[7d:10m] offset 1d) > 5", Fraction(1, 60)) == (
        "rate(x[10080000ms:10000ms] offset 1440000ms) > 5"
    )
