"""Each alert: whole, told to people, tested case by case, and the cases notice when it changes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from mpswatch.web.page_runbooks import runbooks_page

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "rules"
CASES = Path(__file__).parent / "alerts"
RUNBOOKS = ROOT / "deploy" / "runbooks.md"

SHIPPED = {
    rule["alert"]: rule
    for path in sorted(RULES.glob("*.yml"))
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
    if "alert" in rule
}
ALERTS = sorted(SHIPPED)


def promtool_test(files: list[Path]) -> dict[str, bool]:
    """Which of these promtool test files passed, by name."""
    ran = subprocess.run(["promtool", "test", "rules", *map(str, files)], capture_output=True, text=True, check=False)
    parts = re.split(r"Unit Testing:\s+(\S+)\n", ran.stdout + ran.stderr)[1:]
    verdicts = {Path(name).name: "SUCCESS" in said for name, said in zip(parts[::2], parts[1::2], strict=True)}
    if verdicts.keys() != {file.name for file in files}:  # said on stderr instead: ask one by one
        return {file.name: _passes(file) for file in files}
    return verdicts


def _passes(file: Path) -> bool:
    return subprocess.run(["promtool", "test", "rules", file], capture_output=True, check=False).returncode == 0


@pytest.mark.part("promtool")
def test_promtool_has_nothing_to_say_about_any_rule_file() -> None:
    files = sorted(RULES.glob("*.yml"))
    ran = subprocess.run(
        ["promtool", "check", "rules", "--lint=all", "--lint-fatal", *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("SUCCESS") == len(files)


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_when_how_bad_what_and_where_to_read_on(name: str) -> None:
    rule = SHIPPED[name]
    assert rule["for"]
    assert rule["keep_firing_for"]
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert "$labels.instance" in rule["annotations"]["summary"]
    assert not rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["description"].endswith(".")
    assert rule["annotations"]["runbook_url"].endswith(f"#{name.lower()}")


def test_every_alert_has_its_anchor_in_the_runbooks_and_every_anchor_its_alert() -> None:
    headings = re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), re.MULTILINE)
    assert sorted(headings) == ALERTS


@pytest.mark.parametrize("name", ALERTS)
def test_a_runbook_says_what_it_means_how_to_look_what_to_do_and_what_never_to_do(name: str) -> None:
    section = re.search(rf"^## {name}$(.*?)(?=^## |\Z)", RUNBOOKS.read_text(), re.MULTILINE | re.DOTALL)
    assert section is not None
    for part in ("What it means", "How to look", "What to do", "Never"):
        assert f"**{part}.**" in section[1], f"{name}: {part}"


def test_every_runbook_link_leads_to_the_watchers_own_page_and_one_replacement_leads_it_elsewhere() -> None:
    bases = {rule["annotations"]["runbook_url"].partition("#")[0] for rule in SHIPPED.values()}
    assert bases == {"http://{{ $labels.instance }}/runbooks"}
    anchors = set(re.findall(r'<section id="(\w+)">', runbooks_page("gpu-07", version="0", simulated=False)))
    assert {rule["annotations"]["runbook_url"].partition("#")[2] for rule in SHIPPED.values()} <= anchors


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_reads_gauges_over_a_window_so_that_a_gap_changes_nothing(name: str, promql: Any) -> None:
    for selector in promql.selectors(SHIPPED[name]["expr"]):
        windowed = {"increase", "rate"} if selector.name.endswith("_total") else {"max_over_time", "min_over_time"}
        if selector.name in ("mpswatch_build_info", "instance_cap:mpswatch_cap_tflops:median7d"):
            windowed = {"last_over_time"}  # the newest is meant, however old within the window
        if selector.name == "mpswatch_start_time_seconds":
            windowed |= {"changes"}
        assert selector.window, f"{selector.name} is read at one moment"
        assert selector.function in windowed, f"{selector.name} is read through {selector.function}"


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_is_tested_firing_just_not_firing_and_without_data(name: str, promql: Any) -> None:
    file = yaml.safe_load((CASES / f"{name}.yml").read_text())
    cases = {case["name"]: case for case in file["tests"]}
    assert {"fires", "just does not fire", "no data"} <= cases.keys()
    asked = {selector.name for selector in promql.selectors(SHIPPED[name]["expr"])}

    def fed(case: dict[str, Any]) -> set[str]:
        return {re.match(r"[\w:]+", series["series"])[0] for series in case["input_series"]}  # type: ignore[index]

    for case in cases.values():
        assert {test["alertname"] for test in case["alert_rule_test"]} == {name}
    expected = [bool(test["exp_alerts"]) for test in cases["fires"]["alert_rule_test"]]
    assert expected[0] is False, "it must be shown not to fire before its time"
    assert expected[-1] is True
    assert fed(cases["just does not fire"]) & asked
    assert not any(test["exp_alerts"] for test in cases["just does not fire"]["alert_rule_test"])
    assert not {metric for metric in fed(cases["no data"]) if metric.startswith("mpswatch")}
    assert not any(test["exp_alerts"] for test in cases["no data"]["alert_rule_test"])


def test_no_case_is_left_over_from_an_alert_that_is_gone() -> None:
    assert sorted(path.stem for path in CASES.glob("*.yml")) == ALERTS


@pytest.mark.part("promtool")
def test_every_case_holds() -> None:
    verdicts = promtool_test(sorted(CASES.glob("*.yml")))
    assert [name for name, passed in verdicts.items() if not passed] == []
    assert len(verdicts) == len(ALERTS)


_OPERATORS = {">=": ">", "<=": "<", "==": "!=", "!=": "==", ">": ">=", "<": "<="}
_QUIET = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\([^()]*\)(?=\s*\()")  # matchers, ranges, `by (...)`


def mutants(rule: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What could go wrong in this rule, one thing at a time."""
    expression = rule["expr"]
    loud = _QUIET.sub(lambda match: "~" * len(match[0]), expression)
    changed = {
        "no for": {**rule, "for": "0s"},
        "twice the for": {**rule, "for": re.sub(r"\d+", lambda n: str(2 * int(n[0])), rule["for"])},
        "another severity": {**rule, "labels": {"severity": "page"}},
        "never": {**rule, "expr": f"({expression}) and on () vector(0) == 1"},
    }
    for match in re.finditer(r">=|<=|==|!=|>|<", loud):
        flipped = expression[: match.start()] + _OPERATORS[match[0]] + expression[match.end() :]
        changed[f"{_OPERATORS[match[0]]} for {match[0]} at {match.start()}"] = {**rule, "expr": flipped}
    for match in re.finditer(r"(?<![\w.])\d+(\.\d+)?(?![\w.])", loud):
        more = str(round(float(match[0]) * 1.1, 6) if match[1] else int(match[0]) + 1)
        raised = expression[: match.start()] + more + expression[match.end() :]
        changed[f"{more} for {match[0]} at {match.start()}"] = {**rule, "expr": raised}
    return changed


@pytest.mark.part("promtool")
@pytest.mark.parametrize("name", ALERTS)
def test_its_cases_notice_when_a_rule_is_changed(name: str, tmp_path: Path, rule_files: dict[str, Any]) -> None:
    case = yaml.safe_load((CASES / f"{name}.yml").read_text())
    recording = [file for file in case["rule_files"] if "recording" in file]
    needed = [
        group for file in recording for group in rule_files[Path(file).name]["groups"] if "history" in group["name"]
    ]
    names = {}
    for number, (what, rule) in enumerate({"nothing": SHIPPED[name], **mutants(SHIPPED[name])}.items()):
        rules = tmp_path / f"rules{number}.yml"
        rules.write_text(yaml.safe_dump({"groups": [*needed, {"name": "mutant", "rules": [rule]}]}))
        test = tmp_path / f"test{number}.yml"
        test.write_text(yaml.safe_dump({**case, "rule_files": [rules.name]}))
        names[test.name] = what
    verdicts = promtool_test([tmp_path / test for test in names])
    assert {names[test] for test, passed in verdicts.items() if passed} == {"nothing"}
