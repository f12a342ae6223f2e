"""Thorough sweeps and interference from the command line, on a rehearsed stack: tables, documents, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jsonschema
import pytest

from mpswatch.daemon.exit import Exit
from mpswatch.documents import InterferenceDocument, SweepDocument, json_schema
from mpswatch.rehearsal import Stack

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def default() -> float:
    """The percentage that the rehearsed daemon gives each client at most."""
    return 100.0


@pytest.fixture
def mpswatch(tmp_path: Path, default: float) -> Iterator[Run]:
    with Stack(tmp_path / "stack", default_percentage=default) as stack:
        stack.add_service("chat", memory_mib=636)
        settings = {
            "daemons": [{"name": "rehearsed", "pipe_directory": str(stack.pipe_directory)}],
            "mps": {"control_program": str(stack.control_program)},
            "gpu": {"nvidia_smi": str(stack.nvidia_smi)},
            "sweep": {
                "settle": 0,
                "size": 96,
                "iters": 12,
                "caps": [100, 50],
                "thorough": {
                    "passes": 3,
                    "rest": "5ms",
                    "settle_most": "60ms",
                    "sustain": "60ms",
                    "rounds_least": 2,
                    "rounds_most": 2,
                },
            },
            "interference": {"caps": [50], "kinds": ["matmul"], "settle": "50ms", "window": "250ms"},
            "archive": {"directory": str(tmp_path / "archive")},
        }
        file = tmp_path / "mpswatch.yml"
        file.write_text(json.dumps(settings))

        def run(*arguments: str, columns: int = 160) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [sys.executable, "-m", "mpswatch", *arguments, "--config.file", str(file)],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
                env={**os.environ, "COLUMNS": str(columns)},
            )

        yield run
        assert stack.harmed_neighbours() == []
        assert stack.unsafe_ends() == []


def test_a_thorough_sweep_shows_two_quantities_by_name_each_with_its_own_clock_and_power(mpswatch: Run) -> None:
    done = mpswatch("sweep", "--plan", "thorough")
    assert done.returncode == Exit.OK, done.stderr
    for heading in ("quantity", "95 %", "MHz", "verdict", "SIMULATED"):
        assert heading in done.stdout
    rows = [line for line in done.stdout.splitlines() if "burst  " in line or "sustained  " in line]
    assert [("burst" in row, "sustained" in row) for row in rows] == [(True, False), (False, True)] * 2
    assert [line for line in done.stdout.splitlines() if line.endswith(" TFLOPS")] == [
        "burst TFLOPS",
        "sustained TFLOPS",
    ]
    assert "_thorough_" in done.stdout


def test_a_quick_sweep_shows_its_one_figure_and_the_verdict(mpswatch: Run) -> None:
    done = mpswatch("sweep")
    assert done.returncode == Exit.OK, done.stderr
    assert "verdict" in done.stdout
    assert "burst TFLOPS" in done.stdout
    assert "sustained" not in done.stdout


@pytest.mark.parametrize("default", [60.0])
def test_below_the_table_stands_why_a_cap_is_not_enforced_after_a_sweep_and_from_the_archive(mpswatch: Run) -> None:
    """Under a server that gives each client 60 % no cap above that is enforced."""
    doubt = "100 % unknown: the client saw 78 of 132 SMs; 100 % implies at most 132; that is less than this cap implies"
    for done in (mpswatch("sweep", columns=80), mpswatch("archive", "show", columns=80)):
        assert done.returncode == Exit.OK, done.stderr
        (line,) = [line for line in done.stdout.splitlines() if " % unknown: " in line]
        assert line.startswith(doubt)
        above, below = done.stdout.split(line)
        assert "verdict" in above
        assert "█" in below
        assert max(map(len, above.splitlines())) <= 80


def test_a_thorough_document_is_what_its_schema_says(mpswatch: Run) -> None:
    done = mpswatch("sweep", "--plan", "thorough", "--json")
    document = json.loads(done.stdout)
    jsonschema.validate(document, json_schema(SweepDocument))
    assert document["protocol"]["plan"] == "thorough"
    assert {cell["burst"]["count"] for cell in document["cells"]} == {6}


def test_interference_is_a_table_a_picture_and_a_file(mpswatch: Run, tmp_path: Path) -> None:
    done = mpswatch("interference")
    assert done.returncode == Exit.OK, done.stderr
    assert "matmul beside matmul: share of its rate that the victim (row) loses" in done.stdout
    assert "the stack alone" in done.stdout
    (file,) = (tmp_path / "archive" / "interference").iterdir()
    document = json.loads(file.read_text())
    jsonschema.validate(document, json_schema(InterferenceDocument))
    assert document["complete"] is True
    assert document["simulated"] is True
    assert f"{file}: in order" in mpswatch("archive", "validate").stdout


def test_interference_with_a_cap_that_mps_would_ignore_is_a_wrong_argument(mpswatch: Run) -> None:
    done = mpswatch("interference", "--caps", "0,50")
    assert done.returncode == Exit.USAGE
    assert "interference.caps" in done.stderr
