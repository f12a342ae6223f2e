"""What a week weighs: `python history.py` prints JSON.

Two things that no short run can show, from blocks that promtool makes of samples of the past: bytes a sample on disk
(whole expositions of hosts.py's hosts, two hours), and how long the history rule takes to read a week of caps.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

HERE = Path(__file__).parent
RULES = HERE.parents[1] / "deploy" / "prometheus" / "rules"
STEP = 15
WEEK = 7 * 86400


def load(name: str) -> ModuleType:
    unique = f"deploy_rules_{name}"
    if unique not in sys.modules:
        spec = importlib.util.spec_from_file_location(unique, HERE / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[unique] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[unique])
    return sys.modules[unique]


def blocks(lines: Iterator[str], directory: Path) -> int:
    """Make blocks of OpenMetrics lines in DIRECTORY/data; returns how many samples that were."""
    count = 0
    file = directory / "samples.txt"
    with file.open("w") as output:
        for line in lines:
            output.write(line)
            count += 1
        output.write("# EOF\n")
    argv = ["promtool", "tsdb", "create-blocks-from", "--max-block-duration=168h", "openmetrics"]
    subprocess.run([*argv, file, directory / "data"], check=True, capture_output=True)
    file.unlink()
    return count


def expositions(hosts: int, seconds: int) -> Iterator[str]:
    """Every sample of so many hosts over the last `seconds`, one metric after the other as OpenMetrics wants it."""
    module = load("hosts")
    poll = (module.RECORDED / "poll.json").read_text()
    sweep = sorted(module.RECORDED.glob("*_quick_*.json"))[0].read_text()
    by_metric: dict[str, list[str]] = defaultdict(list)
    end = int(time.time()) - 3600
    for number in range(1, hosts + 1):
        host = module.Host(number, poll, sweep, STEP)
        for at in range(end - seconds, end, STEP):
            host.poll_now()
            for line in gzip.decompress(host.body()).decode().splitlines():
                if not line.startswith("#"):
                    name, labels, value = re.fullmatch(r"([\w:]+)(?:\{(.*)\})? (\S+)", line).groups()  # type: ignore[union-attr]
                    target = f'job="mpswatch",instance="{host.name}:10677",cluster="{host.cluster}"'
                    inside = f"{labels},{target}" if labels else target
                    by_metric[name].append(f"{name}{{{inside}}} {value} {at}\n")
    for lines in by_metric.values():
        yield from lines


def week_of_caps(hosts: int) -> Iterator[str]:
    """A week of mpswatch_cap_tflops, scraped every 15 s, measured every hour."""
    chance = random.Random(1)
    now = int(time.time())
    for number in range(hosts):
        for cap, tflops in (("100", 742), ("75", 587), ("50", 436), ("25", 223), ("10", 85)):
            labels = f'job="mpswatch",instance="gpu{number:04}",daemon="d",uuid="GPU-{number}",plan="quick",cap="{cap}"'
            value = float(tflops)
            for at in range(now - WEEK, now - 60, STEP):
                if at % 3600 < STEP:
                    value = tflops * chance.uniform(0.97, 1.03)
                yield f"mpswatch_cap_tflops{{{labels}}} {value} {at}\n"


def weight(hosts: int, seconds: int, directory: Path) -> dict[str, Any]:
    samples = blocks(expositions(hosts, seconds), directory)
    size = sum(file.stat().st_size for file in (directory / "data").rglob("*") if file.is_file())
    return {"samples": samples, "bytes": size, "bytes_a_sample": round(size / samples, 3)}


def history_rule(hosts: int, directory: Path) -> dict[str, Any]:
    samples = blocks(week_of_caps(hosts), directory / "prometheus")
    rules = [
        rule
        for group in yaml.safe_load((RULES / "mpswatch-recording.yml").read_text())["groups"]
        for rule in group["rules"]
        if rule["record"].endswith(":median7d")
    ]
    took = []
    with load("live").prometheus(directory / "prometheus", {"scrape_configs": []}) as server:
        for _ in range(3):
            began = time.monotonic()
            found = server.query(rules[0]["expr"])
            took.append(time.monotonic() - began)
    return {"hosts": hosts, "series": len(found), "samples": samples, "seconds": round(statistics.median(took), 3)}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for part in ("weight", "week/prometheus"):
            (Path(scratch) / part).mkdir(parents=True)
        figures = {
            "weight": weight(5, 7200, Path(scratch) / "weight"),
            "week": history_rule(10, Path(scratch) / "week"),
        }
    print(json.dumps(figures, indent=2))
