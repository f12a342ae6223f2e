from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

GRAFANA = Path(__file__).parents[2] / "deploy" / "grafana"


@pytest.fixture(params=sorted((GRAFANA / "dashboards").glob("*.json")), ids=lambda path: path.stem)
def dashboard(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Each shipped dashboard in turn."""
    content: dict[str, Any] = json.loads(request.param.read_text())
    return content
