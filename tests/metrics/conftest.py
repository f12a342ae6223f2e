"""The facts and clocks of tests/latest serve here too."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_spec = importlib.util.spec_from_file_location("publishing_fixtures", Path(__file__).parents[1] / "latest/conftest.py")
_fixtures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_fixtures)

facts, clock, latest = _fixtures.facts, _fixtures.clock, _fixtures.latest
