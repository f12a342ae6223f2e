"""The machinery of the GPU suite (`make gpu-test`), without a GPU."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


def script(name: str, *arguments: str, seconds: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(HERE / name), *arguments], stdout=subprocess.PIPE, text=True, timeout=seconds, check=False
    )


def rows(path: Path, harness: str) -> list[dict]:
    return [row for row in json.loads(path.read_text()) if row["harness"] == harness]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_every_end_of_the_daemon_or_the_command_leaves_nothing_behind_without_a_gpu(tmp_path: Path) -> None:
    output = tmp_path / "d.json"
    answer = script(
        "daemon_ways.py", "--rehearsal", "--trials", "1", "--seconds", "200", "--output", str(output), seconds=230
    )
    assert answer.returncode == 0, answer.stdout
    found = rows(output, "mpswatch")
    assert len(found) == 17, answer.stdout
    assert all(row["trials"] == 1 and row["neighbours_dead"] == 0 for row in found), answer.stdout


@pytest.mark.timeout(120)
def test_the_whole_suite_goes_on_after_a_part_that_fails_and_keeps_each_result(tmp_path: Path) -> None:
    answer = script(
        "run.py", "--rehearsal", "--trials", "1", "--seconds", "100", "--output", str(tmp_path),
        "--only", "replies", "survival", seconds=110,
    )  # fmt: skip
    ended = {part["part"]: part["exit"] for part in json.loads((tmp_path / "run.json").read_text())}
    assert ended == {"replies": 2, "survival": 0}, answer.stdout  # the first cannot do without a GPU
    assert answer.returncode == 1
    ways = {row["way"]: row["trials"] for row in rows(tmp_path / "survival.json", "mpswatch")}
    assert len([way for way in ways if way.startswith("a pair")]) == 9
    assert set(ways.values()) == {1}
    assert {row["way"]: row["neighbours_dead"] for row in rows(tmp_path / "survival.json", "known_unsafe")} == {
        "SIGKILL of the client at work": 1, "os._exit at work": 1,
        "SIGKILL of the launcher as pid 1 of a pid namespace": 1,
    }  # fmt: skip


@pytest.mark.timeout(90)
def test_the_refusals_of_the_gpu_suite_hold_on_a_rehearsal(tmp_path: Path) -> None:
    answer = script("run.py", "--rehearsal", "--only", "refusals", "--output", str(tmp_path), seconds=80)
    assert answer.returncode == 0, answer.stdout
    assert json.loads((tmp_path / "identity" / "identity.json").read_text())["held"] >= 38


@pytest.mark.timeout(90)
def test_a_killed_daemon_and_a_ctrl_c_leave_nothing_behind_without_a_gpu(tmp_path: Path) -> None:
    output = tmp_path / "d.json"
    for only in ("SIGKILL of the daemon", "Ctrl-C on"):
        answer = script(
            "daemon_ways.py", "--rehearsal", "--trials", "1", "--seconds", "40", "--only", only,
            "--output", str(output), seconds=60,
        )  # fmt: skip
        assert answer.returncode == 0, answer.stdout
        assert [(row["trials"], row["neighbours_dead"]) for row in rows(output, "mpswatch")] == [(1, 0)]


def test_the_suite_itself_tells_the_harmless_from_the_harmful_without_a_gpu(tmp_path: Path) -> None:
    output = tmp_path / "survival.json"
    for only in ("told to leave", "SIGKILL of the client", "timeout that kills"):
        arguments = (
            "--rehearsal",
            "--trials",
            "2",
            "--seconds",
            "90",
            "--naive",
            "--known-unsafe",
            "--only",
            only,
            "--output",
        )
        answer = script("survival.py", *arguments, str(output), seconds=110)
        assert answer.returncode == 0, answer.stdout
        for row in rows(output, "mpswatch"):
            assert row["trials"] > 0
            assert row["neighbours_dead"] == 0, answer.stdout
        for row in rows(output, "known_unsafe") + rows(output, "naive"):
            assert row["neighbours_dead"] > 0, answer.stdout


def test_the_smoke_test_goes_through_without_a_gpu(tmp_path: Path) -> None:
    answer = script("smoke.py", "--rehearsal", "--no-ways", "--caps", "100,50", seconds=60)
    failed = [line for line in answer.stdout.splitlines() if "FAIL" in line and "unwatched" not in line]
    assert failed == [], answer.stdout
    assert answer.stdout.count('"word": "result"') == 2


def test_results_of_several_runs_add_up_and_keep_their_doubt(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("gpu_results", HERE / "results.py")
    results = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(results)
    row = {
        "way": "told to leave",
        "harness": "mpswatch",
        "trials": 15,
        "neighbours_dead": 0,
        "date": "x",
        "driver": "y",
    }
    results.write(
        tmp_path / "run.json", [row, {**row, "way": "w", "harness": "naive", "trials": 4, "neighbours_dead": 4}]
    )
    for _ in range(2):
        results.add(tmp_path / "run.json", tmp_path / "docs" / "survival.json")
    table = results.table(json.loads((tmp_path / "docs" / "survival.json").read_text()))
    assert "| told to leave | mpswatch | 30 | 0 | 9.5% |" in table
    assert "| **all of these** | mpswatch | 30 | 0 | 9.5% |" in table
    assert "| w | naive | 8 | 8 | 100.0% |" in table
    assert results.upper_bound(0, 300) == pytest.approx(0.00994, abs=1e-4)
    assert results.upper_bound(6, 12) == pytest.approx(0.7547, abs=1e-3)
