"""What the script with the namespaced clients says, on a rehearsal: its namespaces and users are real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace and another user take root")
def test_all_of_it_holds_on_a_rehearsal(tmp_path: Path) -> None:
    script = Path(__file__).parent / "namespaced.py"
    answer = subprocess.run(
        [sys.executable, str(script), str(tmp_path), "--rehearsal"],
        stdout=subprocess.PIPE, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout
    found = json.loads((tmp_path / "namespaced.json").read_text())
    assert found["failed"] == []
    assert found["held"] > 70
