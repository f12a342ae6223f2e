"""The evidence script by itself, rehearsed without a GPU: what it writes, whatever the numbers are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent / "evidence.py"


def rehearse(output: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), str(output), "--rehearse", *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    found = json.loads((output / "evidence.json").read_text())
    return ran.returncode, found, ran.stdout + ran.stderr


def test_repeatability_writes_what_varied_and_by_how_much(tmp_path: Path) -> None:
    code, found, said = rehearse(tmp_path, "--part", "repeatability", "--sweeps", "2", "--caps", "100,50")
    assert code in (0, 1), said
    assert found["not_run"] == []
    result = found["repeatability"]
    assert result["sweeps"] == 2
    assert list(result["caps"]) == ["100", "50"]
    for cap in result["caps"].values():
        assert cap["burst"]["cv"] >= 0
        assert cap["sustained"]["median"] >= 0
        assert cap["verdicts"]
    assert len(list((tmp_path / "archive" / "runs").glob("*_thorough_*.json"))) == 2


def test_outside_alternates_and_looks_who_is_on_the_list(tmp_path: Path) -> None:
    code, found, said = rehearse(tmp_path, "--part", "outside", "--alternations", "2")
    assert code in (0, 1), said
    assert found["not_run"] == []
    assert found["outside"]["clients_on_the_list"] == {"inside": [1, 1], "outside": [0, 0]}
    assert found["outside"]["burst"]["samples"] == {"inside": 6, "outside": 6}


@pytest.mark.slow
def test_the_matrix_is_written_cell_by_cell(tmp_path: Path) -> None:
    code, found, said = rehearse(tmp_path, "--part", "matrix")
    assert code == 0, said
    assert len(found["matrix"]["cells"]) == 4 + found["matrix"]["pairs"]
    assert len(list((tmp_path / "archive" / "interference").iterdir())) == 1


def test_time_that_is_over_begins_nothing_more_and_says_so(tmp_path: Path) -> None:
    code, found, said = rehearse(tmp_path, "--part", "repeatability", "--sweeps", "9", "--seconds", "1", "--caps", "50")
    assert code == 2, said
    assert "of 9 sweeps" in found["not_run"][0]
