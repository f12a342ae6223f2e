"""A fleet in short form: what docs/fleet.md works out on paper, seen with a real Prometheus.

The long form (500 hosts, ten minutes) writes the figures of docs/measurements:
`pytest -m slow -s tests/deploy_rules/test_fleet.py`, or `python tests/deploy_rules/fleet.py 500 600`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SERIES_BUDGET = 200  # one GPU, one daemon, five caps: docs/fleet.md calculates with 195
SCRAPE_META = 5  # up and scrape_*, which Prometheus adds to each target


def check(figures: dict[str, Any], hosts: int) -> None:
    assert figures["hosts_up"] == hosts
    assert figures["fleet"]["hosts"] == hosts
    assert figures["fleet"]["hosts_with_foreign_tenants"] == hosts // 10
    assert figures["fleet"]["slowest_by_cap"] == 5 * min(5, hosts)  # caps times clusters, of one model
    assert figures["rule_failures"] == 0
    assert figures["firing"] in ([], ["MpswatchForeignTenant"])
    assert 100 < figures["series_a_host"] < SERIES_BUDGET, "docs/fleet.md says how many series a host has"


@pytest.mark.part("prometheus")
@pytest.mark.timeout(120)
def test_twenty_hosts_are_scraped_and_added_up(tmp_path: Path, fleet_module: Any) -> None:
    interval = 2.0
    figures = fleet_module.measure(20, 6.0, interval, tmp_path)
    check(figures, 20)
    most = 20 * (figures["series_a_host"] + SCRAPE_META) / interval
    assert figures["samples_per_second"] > 0.8 * most
    assert max(group["max"] for group in figures["rule_group_seconds"].values()) < interval


@pytest.mark.slow
@pytest.mark.part("prometheus")
@pytest.mark.timeout(1200)
def test_five_hundred_hosts_are_scraped_and_added_up(tmp_path: Path, fleet_module: Any) -> None:
    figures = fleet_module.measure(500, 600.0, 15.0, tmp_path)
    print(json.dumps(figures, indent=2))
    check(figures, 500)
    assert max(group["max"] for group in figures["rule_group_seconds"].values()) < 15
    assert figures["missed_iterations"] == 0
