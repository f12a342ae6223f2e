from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def _load(name, path):
    """Test code that two rooms share, under a name of its own."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


ProcTree = _load("observe_proc_tree", TESTS / "proc" / "tree.py").ProcTree
FakeDaemon = _load("observe_fake_daemon", TESTS / "mps" / "fake_daemon.py").FakeDaemon


@pytest.fixture
def tree(tmp_path):
    return ProcTree(tmp_path / "proc")


@pytest.fixture
def daemon(tmp_path, tree):
    return FakeDaemon(tmp_path / "pipe", tree)
