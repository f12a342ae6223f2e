"""What the script with the namespaced clients says, on a rehearsal: its namespaces and users are real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mpswatch.documents import SweepDocument, from_json

RECORDED = Path(__file__).parents[1] / "recordings/h200-580/namespaced"
SWEEPS = sorted(RECORDED.glob("sweep-*.json"))


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


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_on_a_real_gpu_each_client_was_managed_and_known_by_its_pid_in_the_namespace(path: Path) -> None:
    document = from_json(path.read_bytes(), SweepDocument)
    namespaced = path.stem != "sweep-another-user"
    log = (RECORDED / f"control-{'user' if 'another-user' in path.stem else 'root'}.txt").read_text()
    assert document.complete_sweep
    assert [(cell.cap, cell.sm_count, cell.state) for cell in document.cells] == [
        ("100", 132, "measured"), ("50", 66, "measured"), ("25", 32, "measured"),
    ]  # fmt: skip
    for cell in document.cells:
        assert cell.self_was_managed
        assert cell.client_pid_is_namespaced is namespaced
        assert (cell.client_reported_pid != cell.client_pid) is namespaced
        assert cell.mps_clients_joined_during_cell == (cell.client_pid,)
        assert f"NEW CLIENT {cell.client_pid} from user {1000 if 'another-user' in path.stem else 0}:" in log


def test_all_five_ways_were_recorded_and_nothing_failed() -> None:
    assert len(SWEEPS) == 5
    assert json.loads((RECORDED / "namespaced.json").read_text())["failed"] == []
