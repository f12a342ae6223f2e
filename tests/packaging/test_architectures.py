"""DGX Spark and GH200 are aarch64: nothing that is shipped may be for one architecture alone."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"x86[_-]64|amd64|aarch64|arm64|[a-z0-9_]+-linux-gnu|ld-linux|/lib64\b|kubernetes\.io/arch")
SHIPPED = sorted(
    path
    for place in ("Dockerfile", "mpswatch", "systemd", "deploy")
    for path in ([ROOT / place] if (ROOT / place).is_file() else (ROOT / place).rglob("*"))
    if path.is_file() and path.suffix not in {".md", ".pyc"}
)


def test_something_is_looked_at():
    assert len(SHIPPED) > 200
    assert NAMED.search("LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_architecture_is_named(path):
    found = NAMED.search(path.read_text(encoding="utf-8", errors="replace"))
    assert found is None, f"{found[0]} in {path.relative_to(ROOT)}"


def test_the_package_is_python_alone():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "ext-modules" not in project["tool"]["setuptools"]
    assert not [path for path in (ROOT / "mpswatch").rglob("*") if path.suffix in {".c", ".so", ".pyx"}]
