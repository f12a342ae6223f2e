from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "mpswatch"


@pytest.fixture(scope="session")
def chart() -> Path:
    return CHART


@pytest.fixture(scope="session")
def render(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[dict[str, Any]]]:
    """Render the chart with a values file, or with values, by the real Helm; CalledProcessError when it refuses."""
    home = tmp_path_factory.mktemp("helm")

    def once(values: Path | dict[str, Any] | None = None) -> list[dict[str, Any]]:
        if isinstance(values, dict):
            file = home / "values.json"
            file.write_text(json.dumps(values))
            values = file
        done = subprocess.run(
            ["helm", "template", "mpswatch", str(CHART), "-n", "gpu-watch", *(["-f", str(values)] if values else [])],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
            env={"PATH": os.environ["PATH"], "HOME": str(home)},
        )
        return [document for document in yaml.safe_load_all(done.stdout) if document]

    return once


@pytest.fixture(scope="session")
def presets() -> dict[str, Path]:
    return {path.name.removesuffix("-values.yaml"): path for path in sorted((CHART / "ci").glob("*.yaml"))}
