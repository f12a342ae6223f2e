from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("observe_proc_tree", Path(__file__).parent / "tree.py")
tree_module = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = tree_module
_spec.loader.exec_module(tree_module)


@pytest.fixture
def tree(tmp_path):
    return tree_module.ProcTree(tmp_path / "proc")


@pytest.fixture
def make_tree():
    return tree_module.ProcTree
