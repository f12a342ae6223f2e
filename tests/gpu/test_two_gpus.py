"""What the two-GPU script says, on a rehearsal with two."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_all_of_it_holds_on_a_rehearsal_with_two_gpus(tmp_path: Path) -> None:
    script = Path(__file__).parent / "two_gpus.py"
    answer = subprocess.run(
        [sys.executable, str(script), str(tmp_path), "--rehearsal"],
        stdout=subprocess.PIPE, text=True, timeout=170, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stdout
    found = json.loads((tmp_path / "two-gpus.json").read_text())
    assert found["failed"] == []
    assert found["held"] > 70
