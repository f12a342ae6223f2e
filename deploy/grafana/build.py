"""Writes dashboards/*.json. Run it after a change here: `python deploy/grafana/build.py` (a test compares).

Built from code because what makes a panel good (unit, description, data source, $__rate_interval) is the same for all.
"""

from __future__ import annotations

import json
from pathlib import Path

from fleet import fleet
from host import host

DASHBOARDS = {"mpswatch-host.json": host, "mpswatch-fleet.json": fleet}


def texts() -> dict[str, str]:
    """Every dashboard's file name and content."""
    return {name: json.dumps(build(), indent=2, ensure_ascii=False) + "\n" for name, build in DASHBOARDS.items()}


if __name__ == "__main__":
    for name, text in texts().items():
        (Path(__file__).parent / "dashboards" / name).write_text(text)
