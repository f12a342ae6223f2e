"""What a fleet costs its Prometheus: `python fleet.py HOSTS SECONDS` scrapes so many hosts and prints JSON.

The hosts are hosts.py's; Prometheus is real, with the shipped rules unchanged, a scrape and an evaluation every 15 s
(or the interval given as a third argument).
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import statistics
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
RULES = HERE.parents[1] / "deploy" / "prometheus" / "rules"


def _live() -> ModuleType:
    if "deploy_rules_live" not in sys.modules:
        spec = importlib.util.spec_from_file_location("deploy_rules_live", HERE / "live.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules["deploy_rules_live"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["deploy_rules_live"])
    return sys.modules["deploy_rules_live"]


def own_metrics(url: str) -> dict[str, float]:
    """What Prometheus says of itself; series without labels by name, the others with their labels."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=20) as reply:  # noqa: S310  # our own process, on loopback
        lines = reply.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024  # type: ignore[index]


def measure(hosts: int, seconds: float, interval: float, directory: Path) -> dict[str, Any]:
    """Scrape `hosts` hosts for `seconds` and say what it took; the first two intervals do not count."""
    live = _live()
    port = live.free_port()
    targets = directory / "targets.json"
    argv = [sys.executable, str(HERE / "hosts.py"), str(hosts), str(port), str(interval), str(targets)]
    configuration = {
        "global": {"scrape_interval": f"{interval:g}s", "evaluation_interval": f"{interval:g}s"},
        "rule_files": [str(RULES / "*.yml")],
        "scrape_configs": [{"job_name": "mpswatch", "file_sd_configs": [{"files": [str(targets)]}]}],
    }
    with live.program(argv, directory / "hosts.log") as published:
        live.wait_for(
            lambda: live.answers(f"http://127.0.0.1:{port}/1/metrics") or published.poll() is not None,
            seconds=60,
            saying="the hosts answer",
        )
        assert published.poll() is None, (directory / "hosts.log").read_text()
        with live.prometheus(directory / "prometheus", configuration) as server:
            live.wait_for(
                lambda: server.value('count(up{job="mpswatch"} == 1)') == hosts,
                seconds=3 * interval + 30,
                saying=f"{hosts} hosts are up",
            )
            time.sleep(2 * interval)
            return _measured(server, published.pid, hosts, seconds, interval)


def _measured(server: Any, published: int, hosts: int, seconds: float, interval: float) -> dict[str, Any]:
    began, before = time.monotonic(), own_metrics(server.url)
    cpu = {"prometheus": cpu_seconds(server.process.pid), "hosts": cpu_seconds(published)}
    evaluations: dict[str, list[float]] = {}
    memory = []
    while time.monotonic() - began < seconds:
        time.sleep(min(interval, seconds))
        memory.append(resident_mib(server.process.pid))
        for group in server.rules():
            evaluations.setdefault(group["name"], []).append(group["evaluationTime"])
    took, after = time.monotonic() - began, own_metrics(server.url)

    def grown(start: str) -> float:
        return sum(value - before.get(name, 0) for name, value in after.items() if name.startswith(start))

    return {
        "hosts": hosts,
        "seconds": round(took, 1),
        "interval": interval,
        "series_a_host": server.value("max(scrape_samples_post_metric_relabeling)"),
        "hosts_up": server.value('count(up{job="mpswatch"} == 1)'),
        "head_series": after["prometheus_tsdb_head_series"],
        "samples_per_second": round(grown("prometheus_tsdb_head_samples_appended_total") / took, 1),
        "scrape_seconds_median": server.value('quantile(0.5, scrape_duration_seconds{job="mpswatch"})'),
        "scrape_seconds_99": server.value('quantile(0.99, scrape_duration_seconds{job="mpswatch"})'),
        "rule_group_seconds": {
            name: {"median": round(statistics.median(found), 4), "max": round(max(found), 4)}
            for name, found in evaluations.items()
        },
        "rule_failures": grown("prometheus_rule_evaluation_failures_total"),
        "missed_iterations": grown("prometheus_rule_group_iterations_missed_total"),
        "prometheus_resident_mib": round(max(memory), 1),
        "prometheus_cpu_share": round((cpu_seconds(server.process.pid) - cpu["prometheus"]) / took, 3),
        "hosts_cpu_share": round((cpu_seconds(published) - cpu["hosts"]) / took, 3),
        "fleet": {
            "hosts_with_foreign_tenants": server.value("sum(cluster:mpswatch_hosts_with_foreign_tenants:count)"),
            "hosts": server.value("sum(cluster:mpswatch_hosts:count)"),
            "slowest_by_cap": len(server.query("cluster_cap:mpswatch_cap_tflops:bottom1")),
        },
        "firing": sorted(server.firing()),
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        figures = measure(
            int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 15.0, Path(scratch)
        )
    print(json.dumps(figures, indent=2))
