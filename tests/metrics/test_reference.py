"""docs/metrics.md says what is published: no metric and no reason is missing there, and each query is one."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from mpswatch.documents import Reason
from mpswatch.metrics import TABLE
from mpswatch.metrics.reference import SECTIONS, replaced

DOCS = Path(__file__).parents[2] / "docs/metrics.md"


def test_the_document_has_the_list_that_the_table_gives():
    """Write it anew with: python -m mpswatch.metrics.reference docs/metrics.md"""
    text = DOCS.read_text()
    assert text == replaced(text)
    assert sorted(spec.name for _, specs in SECTIONS for spec in specs) == sorted(spec.name for spec in TABLE)


def test_the_document_names_every_reason():
    section = DOCS.read_text().split("## Reasons")[1].split("## ")[0]
    assert set(re.findall(r"`([a-z_]+)`", section)) == {reason.value for reason in Reason}


def test_names_follow_the_house_style():
    for spec in TABLE:
        assert re.fullmatch(r"mpswatch_[a-z_]+", spec.name)
        assert spec.name.endswith("_total") == (spec.kind == "counter")
        assert spec.name.endswith("_info") == (spec.kind == "info")
        assert not re.search(r"_(ms|mb|mib|percent|age)(_|$)", spec.name)
        assert spec.help.endswith(".")
        assert spec.help.isascii()
        assert not set(spec.help) & set('"\\\n')
        assert not {"hostname", "host", "instance", "job"} & set(spec.labels)
        assert "pid" not in spec.labels or spec.name == "mpswatch_tenant_memory_bytes"


@pytest.mark.part("promtool")
def test_each_query_is_one_that_prometheus_takes(tmp_path):
    rules = [{"record": f"job:{spec.name}:example", "expr": spec.example} for spec in TABLE]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "examples", "rules": rules}]}))
    checked = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    for spec in TABLE:
        named = set(re.findall(r"mpswatch_[a-z_]+", spec.example))
        assert named <= {one.name for one in TABLE}
