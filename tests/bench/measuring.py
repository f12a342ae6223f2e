"""How the bench measures: by turns, on this process's own CPU clock, with the spread beside the middle."""

from __future__ import annotations

import gc
import os
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def own_cpu() -> float:
    return time.process_time()


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def by_turns(works: dict[str, Callable[[], object]], rounds: int, each: int = 1) -> dict[str, list[float]]:
    """Own CPU in milliseconds of one call of each, `rounds` times by turns, `each` calls at a time."""
    found: dict[str, list[float]] = {name: [] for name in works}
    gc.collect()
    gc.freeze()
    for _ in range(rounds):
        for name, work in works.items():
            began = own_cpu()
            for _ in range(each):
                work()
            found[name].append(1e3 * (own_cpu() - began) / each)
    gc.unfreeze()
    return found


def middle(rows: list[float]) -> dict[str, float]:
    """Median and quartiles."""
    ordered = sorted(rows)
    return {
        "median": round(statistics.median(ordered), 4),
        "low": round(ordered[len(ordered) // 4], 4),
        "high": round(ordered[(len(ordered) * 3) // 4], 4),
    }


def ratio(of: list[float], to: list[float]) -> dict[str, float]:
    """The ratio of two that were measured by turns, round by round: what a baseline can be compared with."""
    return middle([one / other for one, other in zip(of, to, strict=True)])


def line(points: dict[int, float]) -> tuple[float, float]:
    """Intercept and slope of the straight line through `points`."""
    found = statistics.linear_regression(list(points), list(points.values()))
    return found.intercept, found.slope


def resident(pid: int | None = None) -> dict[str, float]:
    """MiB, from the kernel's own sum."""
    text = Path(f"/proc/{pid or 'self'}/smaps_rollup").read_text()
    kib = {key: int(text.split(f"\n{key}:")[1].split()[0]) for key in ("Rss", "Anonymous")}
    return {"rss_mib": round(kib["Rss"] / 1024, 2), "anonymous_mib": round(kib["Anonymous"] / 1024, 2)}


def machine() -> dict[str, Any]:
    import platform
    from importlib import metadata

    cpu = next((row.partition(":")[2].strip() for row in Path("/proc/cpuinfo").read_text().splitlines()
                if row.startswith("model name")), platform.machine())  # fmt: skip
    versions = {}
    for name in ("msgspec", "prometheus-client", "starlette", "uvicorn", "structlog", "apscheduler", "nvidia-ml-py"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "absent"
    return {
        "cpus": len(os.sched_getaffinity(0)), "cpu": cpu, "python": platform.python_version(),
        "kernel": platform.release(), "load": round(os.getloadavg()[0], 1), **versions,
    }  # fmt: skip
