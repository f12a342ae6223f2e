"""Draws docs/pictures/dashboard-host.svg and dashboard-fleet.svg: `python tests/deploy_rules/picture.py [SECONDS]`.

The host's from the rehearsal stack (end to end, as test_end_to_end.py), the fleet's from twenty of hosts.py's hosts.
The data are Prometheus' answers to the panels' own queries; only the drawing is ours.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from mpswatch.rehearsal.tell import tell

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PICTURES = ROOT / "docs" / "pictures"
FLEET = 20


def load(name: str) -> ModuleType:
    unique = f"deploy_rules_{name}"
    if unique not in sys.modules:
        spec = importlib.util.spec_from_file_location(unique, HERE / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[unique] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[unique])
    return sys.modules[unique]


def asking(server: Any, job: str, start: float, step: float) -> Callable[[dict[str, Any]], list[Any]]:
    """Answers a panel's target as Grafana would ask it."""

    def ask(target: dict[str, Any]) -> list[Any]:
        expression = target["expr"]
        filled = {"$job": job, "$instance": ".+", "$cluster": ".*", "$__rate_interval": f"{10 * step:g}s"}
        for variable, value in filled.items():
            expression = expression.replace(variable, value)
        if target["instant"]:
            return [
                (found["metric"], [(found["value"][0], float(found["value"][1]))]) for found in server.query(expression)
            ]
        return [
            (found["metric"], [(at, float(value)) for at, value in found["values"]])
            for found in server.query_range(expression, start, time.time(), step)
        ]

    return ask


def dashboard(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((ROOT / "deploy/grafana/dashboards" / name).read_text())
    return content


def shipped_rules(factor: Fraction) -> dict[str, Any]:
    rules = sorted((ROOT / "deploy/prometheus/rules").glob("*.yml"))
    return {path.name: load("scaling").scaled(yaml.safe_load(path.read_text()), factor) for path in rules}


def host(directory: Path, seconds: float) -> str:
    with load("live").live(directory, shipped_rules(Fraction(1, 60)), sweep_interval="20s") as running:
        began = time.monotonic()
        load("live").sweep_thoroughly(running.stack)
        tell(running.stack, "foreign", name="notebook", memory_mib=658)
        time.sleep(seconds / 5)
        visitor = tell(running.stack, "foreign", name="training", memory_mib=2400)["pid"]
        time.sleep(seconds / 4)
        tell(running.stack, "remove", pid=visitor)
        time.sleep(seconds / 10)
        tell(running.stack, "replace_server", again=True)
        time.sleep(max(began + 0.8 * seconds - time.monotonic(), 1))
        load("live").sweep_thoroughly(running.stack)
        time.sleep(max(began + seconds - time.monotonic(), 2))
        ask = asking(running.prometheus, "mpswatch", running.started + 3, 1)
        note = "panels' data from a real Prometheus; SIMULATED: a rehearsal stack, no GPU was measured"
        return str(load("drawing").draw(dashboard("mpswatch-host.json"), ask, until_row="Server", note=note))


def fleet(directory: Path, seconds: float) -> str:
    live = load("live")
    port, targets = live.free_port(), directory / "targets.json"
    argv = [sys.executable, str(HERE / "hosts.py"), str(FLEET), str(port), "1", str(targets)]
    rules = directory / "rules"
    rules.mkdir(parents=True)
    for name, content in shipped_rules(Fraction(1, 60)).items():
        (rules / name).write_text(yaml.safe_dump(content))
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules / "*.yml")],
        "scrape_configs": [{"job_name": "mpswatch", "file_sd_configs": [{"files": [str(targets)]}]}],
    }
    with live.program(argv, directory / "hosts.log"):
        live.wait_for(targets.exists, seconds=30, saying="the hosts are there")
        began = time.time()
        with live.prometheus(directory / "prometheus", configuration) as server:
            time.sleep(seconds)
            ask = asking(server, "mpswatch", began + 3, 1)
            note = f"panels' data from a real Prometheus; {FLEET} hosts played with documents of one H200"
            return str(
                load("drawing").draw(dashboard("mpswatch-fleet.json"), ask, until_row="Sweeps and watchers", note=note)
            )


if __name__ == "__main__":
    length = float(sys.argv[1]) if len(sys.argv) > 1 else 150.0
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        (PICTURES / "dashboard-host.svg").write_text(host(Path(scratch) / "host", length))
        (PICTURES / "dashboard-fleet.svg").write_text(fleet(Path(scratch) / "fleet", min(length, 60)))
