from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "rules"


def load(name: str) -> ModuleType:
    """A module of this folder: tests are no package, and names may repeat between folders."""
    unique = f"deploy_rules_{name}"
    if unique not in sys.modules:
        spec = importlib.util.spec_from_file_location(unique, Path(__file__).parent / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[unique] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[unique])
    return sys.modules[unique]


@pytest.fixture(scope="session")
def promql() -> ModuleType:
    return load("promql")


@pytest.fixture(scope="session")
def scaling() -> ModuleType:
    return load("scaling")


@pytest.fixture(scope="session")
def live_module() -> ModuleType:
    return load("live")


@pytest.fixture(scope="session")
def fleet_module() -> ModuleType:
    return load("fleet")


@pytest.fixture(scope="session")
def picture_module() -> ModuleType:
    return load("picture")


@pytest.fixture(scope="session")
def rule_files() -> dict[str, dict[str, Any]]:
    """The shipped rule files: name to content."""
    return {path.name: yaml.safe_load(path.read_text()) for path in sorted(RULES.glob("*.yml"))}


@pytest.fixture(scope="session")
def alerts(rule_files: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    rules = [rule for content in rule_files.values() for group in content["groups"] for rule in group["rules"]]
    return {rule["alert"]: rule for rule in rules if "alert" in rule}


@pytest.fixture(scope="session")
def recording_rules(rule_files: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    rules = [rule for content in rule_files.values() for group in content["groups"] for rule in group["rules"]]
    return {rule["record"]: rule for rule in rules if "record" in rule}
