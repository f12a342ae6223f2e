"""README's picture of a sweep is what the program prints of a recorded run today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_picture_of_a_sweep_is_current(tmp_path: Path) -> None:
    run = min((ROOT / "tests/recordings/h200-580").glob("*_quick_*.json"))
    drawn = tmp_path / "sweep.svg"
    argv = [sys.executable, str(ROOT / "docs/pictures/draw_sweep.py"), str(run), str(drawn)]
    subprocess.run(argv, check=True)
    assert drawn.read_text() == (ROOT / "docs/pictures/sweep.svg").read_text()
    assert "enforced" in drawn.read_text()
