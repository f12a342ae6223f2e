"""Real Prometheus scrapes the daemon on the rehearsal stack with the shipped rules; real Alertmanager receives.

Every duration of the rules is a sixtieth of the shipped one (test_rules.py proves that nothing else differs).
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from mpswatch.rehearsal.tell import tell

FACTOR = Fraction(1, 60)
SLACK = 5.0  # seconds: poll, scrape and evaluation are 1 s apart each, and Alertmanager takes up to 2 s
DASHBOARDS = sorted((Path(__file__).parents[2] / "deploy" / "grafana" / "dashboards").glob("*.json"))

pytestmark = [
    pytest.mark.part("prometheus"),
    pytest.mark.part("prometheus-alertmanager"),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def live(
    tmp_path_factory: pytest.TempPathFactory, live_module: Any, scaling: Any, rule_files: dict[str, Any]
) -> Iterator[Any]:
    scaled = {name: scaling.scaled(content, FACTOR) for name, content in rule_files.items()}
    with live_module.live(tmp_path_factory.mktemp("live"), scaled) as running:
        yield running


def seconds_of(rule: dict[str, Any], key: str, scaling: Any) -> float:
    return float(scaling.milliseconds(rule[key]) * FACTOR / 1000)


def test_a_foreign_tenant_is_at_the_webhook_within_its_for_and_resolves_after_it_left(
    live: Any, live_module: Any, alerts: dict[str, Any], scaling: Any
) -> None:
    name = "MpswatchForeignTenant"
    rule = alerts[name]
    window = float(scaling.milliseconds(re.search(r"\[(\w+)\]", rule["expr"])[1]) * FACTOR / 1000)  # type: ignore[index]
    waited = live_module.wait_for
    waited(
        lambda: live.prometheus.value('mpswatch_foreign_tenants{job="mpswatch"}') == 0,
        seconds=30,
        saying="the first scrape says that nobody is foreign",
    )
    assert not live.webhook.alerts(name, "firing", "mpswatch")

    pid = tell(live.stack, "foreign", name="notebook", memory_mib=2048)["pid"]
    appeared = time.monotonic()
    due = seconds_of(rule, "for", scaling)
    came, alert = waited(
        lambda: live.webhook.alerts(name, "firing", "mpswatch"), seconds=due + SLACK, saying=f"{name} at the webhook"
    )[0]
    assert due <= came - appeared <= due + SLACK
    assert alert["labels"]["severity"] == "warning"
    assert alert["annotations"]["summary"].startswith("Foreign tenants on GPU GPU-")
    assert alert["annotations"]["runbook_url"].endswith("#mpswatchforeigntenant")

    tell(live.stack, "remove", pid=pid)
    left = time.monotonic()
    due = window + seconds_of(rule, "keep_firing_for", scaling)
    came, _ = waited(
        lambda: live.webhook.alerts(name, "resolved", "mpswatch"), seconds=due + SLACK, saying=f"{name} resolved"
    )[0]
    assert due - 1 <= came - left <= due + SLACK


def test_a_dead_control_daemon_is_reported_and_its_return_resolves_it(live: Any, live_module: Any) -> None:
    name = "MpswatchControlDaemonDown"
    tell(live.stack, "die", what="daemon")
    live_module.wait_for(lambda: live.webhook.alerts(name, "firing", "mpswatch"), seconds=5 + SLACK, saying=name)
    tell(live.stack, "start")
    live_module.wait_for(
        lambda: live.webhook.alerts(name, "resolved", "mpswatch"), seconds=8 + SLACK, saying=f"{name} resolved"
    )
    tell(live.stack, "service", name="chat", memory_mib=636)  # services died with their server


def test_a_gpu_fault_too_short_to_be_polled_is_reported_from_the_servers_log(live: Any, live_module: Any) -> None:
    name = "MpswatchGpuFault"
    live_module.wait_for(
        lambda: live.prometheus.value('mpswatch_gpu_faults_total{job="mpswatch"}') is not None,
        seconds=10,
        saying="server.log is being read",
    )
    tell(live.stack, "break")
    live_module.wait_for(lambda: live.webhook.alerts(name, "firing", "mpswatch"), seconds=1 + SLACK, saying=name)
    tell(live.stack, "service", name="embedding", memory_mib=412)


def test_a_fleet_is_recorded_without_rehearsals(live: Any, live_module: Any) -> None:
    fleet = '{__name__=~"(instance|cluster|cluster_cap):mpswatch_.*"}'
    live_module.wait_for(
        lambda: live.prometheus.query("cluster_cap:mpswatch_cap_tflops:median"), seconds=60, saying="a sweep of a fleet"
    )
    assert live.prometheus.value('cluster:mpswatch_hosts:count{cluster="test"}') == 1
    assert live.prometheus.query('mpswatch_simulated{job="mpswatch-rehearsal"} == 1')
    recorded = live.prometheus.query(fleet)
    assert {series["metric"].get("cluster") for series in recorded} == {"test"}
    assert {series["metric"].get("job") for series in recorded} <= {None, "mpswatch"}


def test_every_rule_is_evaluated_without_a_fault(live: Any) -> None:
    rules = [rule for group in live.prometheus.rules() for rule in group["rules"]]
    assert len(rules) > 30
    assert [rule["name"] for rule in rules if rule["health"] == "err"] == []


def queries(path: Path) -> list[tuple[str, str, bool]]:
    """Each panel's title and expressions, filled in as Grafana would, and whether it asks for one moment."""
    dashboard = json.loads(path.read_text())
    filled = {"$job": "mpswatch", "$instance": ".+", "$cluster": ".*", "$__rate_interval": "10s"}
    found = []
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for variable, value in filled.items():
                expression = expression.replace(variable, value)
            found.append((panel["title"], expression, target["instant"]))
    return found


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_panel_has_something_to_show(live: Any, live_module: Any, path: Path) -> None:
    live_module.wait_for(
        lambda: live.prometheus.query('mpswatch_cap_tflops{job="mpswatch"}'), seconds=60, saying="the first sweep"
    )
    if not live.prometheus.query("mpswatch_cap_sustained_tflops"):
        live_module.sweep_thoroughly(live.stack)
    tell(live.stack, "foreign", name="notebook", memory_mib=2048)
    live_module.wait_for(
        lambda: live.prometheus.query('mpswatch_foreign_tenant_memory_bytes{job="mpswatch"}'),
        seconds=SLACK,
        saying="the notebook in Prometheus",
    )
    silent: list[str] = []

    def all_show() -> bool:
        silent[:] = [
            f"{title}: {expression}" for title, expression, instant in queries(path) if not shown(expression, instant)
        ]
        return not silent

    def shown(expression: str, instant: bool) -> list[Any]:
        if instant:
            return live.prometheus.query(expression)
        return live.prometheus.query_range(expression, live.started, time.time(), 1)

    with contextlib.suppress(AssertionError):  # a rate needs a second scrape
        live_module.wait_for(all_show, seconds=15, saying="every panel shows something")
    assert not silent, "\n".join(silent)


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_the_picture_of_a_dashboard_is_drawn_from_those_answers(live: Any, picture_module: Any, path: Path) -> None:
    dashboard = json.loads(path.read_text())
    ask = picture_module.asking(live.prometheus, "mpswatch", live.started, 1)
    svg = picture_module.load("drawing").draw(dashboard, ask, until_row=None, note="simulated")
    elements = ET.fromstring(svg).iter()  # noqa: S314  # drawn by ourselves just now
    texts = {element.text for element in elements if element.tag.endswith("}text")}
    assert {panel["title"] for panel in dashboard["panels"]} <= texts
    assert "no data" not in texts
