"""One archive with everything in it that must not be averaged together: every view names it and keeps it apart.

Two GPUs, of which one gives a tenth of the other; a run of another schema version, one that was cut off, one without
two of its caps, one whose cap failed, and thorough runs beside the quick ones.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from datetime import timedelta

import httpx
import pytest

from mpswatch.daemon.runs import find_run
from mpswatch.documents import Reason
from mpswatch.history import look_back
from mpswatch.journal import Journal
from mpswatch.latest import Latest, Settings
from mpswatch.metrics import Exposition
from mpswatch.web import Protection, application

OTHER = "GPU-99999999-0000"


@pytest.fixture
def messy(archive, run, written, facts):
    """Writes it, and gives the newest runs: of the one GPU, of the other, and the thorough one."""
    for hour in range(12):
        slow = tuple(facts.cell(cap, tflops=tflops / 10) for cap, (_, tflops) in facts.CURVE.items())
        written(run(hour), facts.sweep(run_id=f"other-{hour:04}", gpu=facts.gpu(OTHER), cells=slow, **at(facts, hour)))
        written(facts.thorough(run_id=f"thorough-{hour:04}", **at(facts, hour)))
    written(run(12, failed={"10": Reason.DEADLINE}))
    few = facts.sweep(run_id="few", cells=(facts.cell("100"), facts.cell("50", tflops=436.0)), **at(facts, 13))
    (path,) = written(few)
    for name, content in (
        ("v2", json.dumps({**json.loads(path.read_text()), "run_id": "v2", "schema_version": 2})),
        ("cut", path.read_text()[:900]),
    ):
        (archive.runs / path.name.replace("few", name)).write_text(content)
    return few, run(12), facts.thorough(run_id="thorough-0012", **at(facts, 12))


def at(facts, hour):
    time = facts.NOON + timedelta(hours=hour)
    return {"started_at": time, "finished_at": time, "recorded_at": time}


def command(archive, *arguments):
    argv = [sys.executable, "-m", "mpswatch", arguments[0], "--archive", str(archive.directory), *arguments[1:]]
    environment = {**os.environ, "COLUMNS": "160"}
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60, env=environment)


def test_history_names_what_it_leaves_out_and_shows_each_gpu_and_plan_by_itself(archive, messy, facts):
    done = command(archive, "history", "--json")
    named = [line for line in done.stderr.splitlines() if line.startswith("not in any history: ")]
    assert len(named) == 2
    assert any("_v2.json" in line and "schema_version 2 is not 1" in line for line in named)
    assert any("_cut.json" in line for line in named)
    shown = {(one["series"]["gpu_uuid"], one["series"]["plan"]): one for one in json.loads(done.stdout)}
    assert shown.keys() == {(facts.GPU, "quick"), (OTHER, "quick"), (facts.GPU, "thorough")}
    medians = {
        key: {(stands["cap"], stands["quantity"]): stands["median"] for stands in one["standing"]}
        for key, one in shown.items()
    }
    assert medians[facts.GPU, "quick"]["50", "tflops"] == 436.0
    assert medians[OTHER, "quick"]["50", "tflops"] == 43.6
    assert medians[facts.GPU, "thorough"]["50", "sustained"] == facts.SUSTAINED["50"]
    newest = shown[facts.GPU, "quick"]["runs"][-2:]
    assert newest[0]["caps"]["10"]["unknown_reason"] == "deadline"
    assert newest[1]["caps"].keys() == {"100", "50"}


def test_the_table_says_why_a_cap_has_no_number(archive, messy):
    done = command(archive, "history", "--gpu", "GPU-4a1b", "--plan", "quick", "--limit", "2")
    assert "10 % burst: standing unknown (not_recorded, 0 earlier runs)" in done.stdout
    failed, few = (line.split() for line in done.stdout.splitlines() if line.startswith(("run-0012", "few ")))
    assert failed[1:7] == ["742", "436", "587", "223", "deadline", "partial,"]
    assert few[1:] == ["742", "436", *["not", "in", "this", "run"] * 3, "complete,", *["2", "managed,", "0", "foreign"]]
    done = command(archive, "history", "--gpu", "GPU-4a1b", "--plan", "quick", "--cap", "11")
    assert "no run has such a cap" in done.stdout


def test_compare_forms_no_ratio_across_gpus_or_plans_and_names_missing_caps(archive, messy):
    done = command(archive, "compare", "run-0011", "other-0011")
    assert "no ratio is formed" in done.stdout
    assert re.search(r"GPU\W+GPU-4a1bc0de\S*\W+GPU-99999999", done.stdout)
    assert not re.search(r"[+-]\d+\.\d%", done.stdout)
    done = command(archive, "compare", "run-0011", "thorough-0011")
    assert not re.search(r"[+-]\d+\.\d%", done.stdout)
    rows = [line for line in done.stdout.splitlines() if "sustained" in line]
    assert len(rows) == 5
    assert all("not measured" in row for row in rows)
    done = command(archive, "compare", "run-0012", "few")
    assert "unknown: deadline" in done.stdout
    assert done.stdout.count("not in this run") == 3


@pytest.mark.parametrize("bad", ["v2", "cut"])
def test_compare_names_a_file_that_is_no_run_of_this_version(archive, messy, bad):
    (path,) = archive.runs.glob(f"*_{bad}.json")
    done = command(archive, "compare", "run-0011", str(path))
    assert done.returncode == 1
    assert path.name in done.stderr
    assert command(archive, "compare", "run-0011", bad).returncode == 1  # by its id it is not to be found at all


def test_the_report_keeps_them_apart_and_names_the_files(archive, messy, tmp_path):
    done = command(archive, "report", "--output", str(tmp_path / "report.html"))
    assert done.returncode == 0
    assert sum(line.startswith("not in it: ") for line in done.stderr.splitlines()) == 2
    text = (tmp_path / "report.html").read_text()
    assert "schema_version 2 is not 1" in text
    tables = re.findall(
        r"Caps over the period, TFLOPS: (GPU-\w+)[^<]*plan (\w+)[^<]*</caption>(.*?)</table>", text, re.S
    )
    assert {(gpu, plan) for gpu, plan, _ in tables} == {
        ("GPU-4a1bc0de", "quick"), ("GPU-99999999", "quick"), ("GPU-4a1bc0de", "thorough"),
    }  # fmt: skip
    medians = {(gpu, plan): re.findall(r'data-label="median"><div>([\d.]+)', rows) for gpu, plan, rows in tables}
    assert medians["GPU-4a1bc0de", "quick"][2] == "436.0"
    assert medians["GPU-99999999", "quick"][2] == "43.6"
    assert medians["GPU-4a1bc0de", "thorough"][4:6] == ["436.0", "429.0"]
    missing = {gpu: re.findall(r'data-label="without one"><div>([^<]+)', rows) for gpu, plan, rows in tables
               if plan == "quick"}  # fmt: skip
    assert missing["GPU-99999999"] == ["0"] * 5
    assert sorted(missing["GPU-4a1bc0de"]) == ["0", "0", "1 deadline, 1 not in this run", *["1 not in this run"] * 2]


def test_the_page_counts_what_it_cannot_read_and_holds_each_gpu_against_its_own(archive, messy, facts):
    latest = Latest(
        Settings(daemons={facts.DAEMON: facts.PIPE}, poll_interval=15.0, sweep_interval=1e9),
        host=facts.HOST,
        simulated=False,
    )
    other = facts.sweep(
        run_id="other-0012", gpu=facts.gpu(OTHER), **at(facts, 12), cells=(facts.cell("50", tflops=43.6),)
    )
    for document in (*messy, other):
        latest.record(document)
        latest.record(look_back(archive, document, now=facts.NOON))
    app = application(
        latest=latest, exposition=Exposition(latest), protection=Protection(None),
        healthy=lambda: True, verdict=lambda: "",
        find_run=lambda run_id: find_run(archive, Journal(archive.directory), run_id),
    )  # fmt: skip

    async def pages():
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://mpswatch") as client:
            return [await client.get(path) for path in ("/", "/runs/v2", "/runs/few", "/runs/run-0012")]

    page, v2, few, failed = asyncio.run(pages())
    assert page.text.count("2 files of the archive could not be read") == 3
    usual = re.findall(r"usually ([\d.]+) – ([\d.]+)", page.text)
    assert ("42.3", "44.9") in usual
    assert ("422.9", "449.1") in usual
    assert not [edge for pair in usual for edge in pair if 90 < float(edge) < 200 and edge not in {"216.3", "229.7"}]
    assert v2.status_code == 404
    assert few.status_code == 200
    assert "25 % burst" not in few.text
    assert "unknown: deadline" in failed.text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda run: run["cells"][0].update(sm_count=10**30), "$.cells[0].sm_count"),
        (lambda run: run["protocol"].update(iters=2**64), "$.protocol.iters"),
        (lambda run: run.update(started_at="0001-01-01T00:00:00+14:00"), "out of range"),
    ],
)
def test_one_file_that_no_row_can_hold_is_named_and_costs_no_other(archive, run, written, *, change, said):
    (path, *_) = written(run(0), run(1), run(2))
    bad = json.loads(path.read_text())
    change(bad)
    (archive.runs / path.name.replace("run-0000", "bad")).write_text(json.dumps(bad))
    done = command(archive, "history", "--json")
    assert done.returncode == 0, done.stderr
    (named,) = [line for line in done.stderr.splitlines() if line.startswith("not in any history: ")]
    assert "_bad.json" in named
    assert said in named
    assert [one["run_id"] for one in json.loads(done.stdout)[0]["runs"]] == ["run-0000", "run-0001", "run-0002"]
    assert command(archive, "compare", "run-0000", "run-0001").returncode == 0
    assert command(archive, "report", "--output", str(archive.directory / "report.html")).returncode == 0
    assert look_back(archive, run(3), now=run(3).finished_at).unreadable == 1


@pytest.fixture
def small(archive, written, facts):
    """Runs with long ids and small numbers, quick and thorough."""
    for hour in range(2):
        cells = tuple(facts.cell(cap, tflops=tflops / 45678) for cap, (_, tflops) in facts.CURVE.items())
        written(facts.sweep(run_id=f"20261130T12{hour:02}00Z-a1b2c3", cells=cells, **at(facts, hour)))
        written(facts.thorough(run_id=f"20261130T13{hour:02}00Z-a1b2c3", **at(facts, hour)))
    return archive


def at_80_columns(archive, *arguments):
    argv = [sys.executable, "-m", "mpswatch", *arguments, "--archive", str(archive.directory)]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    assert "…" not in done.stdout
    return done.stdout


def test_in_a_pipe_no_id_and_no_number_is_cut(small):
    shown = at_80_columns(small, "history")
    for run in ("20261130T120000Z-a1b2c3", "20261130T130100Z-a1b2c3"):
        assert re.search(rf"^{run} ", shown, re.M)
        assert run in at_80_columns(small, "archive", "ls")
    (row,) = [line for line in shown.splitlines() if line.startswith("20261130T120100Z-a1b2c3")]
    assert row.split()[1:6] == ["0.01624", "0.01285", "0.009545", "0.004882", "0.001861"]
    assert max(len(line) for line in shown.splitlines() if line.startswith("2026")) <= 80
    shown = at_80_columns(small, "compare", "20261130T120000Z-a1b2c3", "20261130T120100Z-a1b2c3")
    assert re.search("cap TFLOPS 20261130T120000Z-a1b2c3 +20261130T120100Z-a1b2c3 +change", shown)
    assert shown.count("0.009545") == 2
    shown = at_80_columns(small, "compare", "20261130T130000Z-a1b2c3", "20261130T130100Z-a1b2c3")
    assert shown.count("(645.7 to 648.3)") == 2


def test_the_table_comes_first_and_two_runs_make_no_picture(small, written, facts):
    shown = at_80_columns(small, "history", "--plan", "quick")
    assert shown.index("20261130T120100Z-a1b2c3") < shown.index("50 % burst: 0.009545 TFLOPS, standing unknown")
    assert "┤" not in shown
    written(facts.sweep(run_id="third", **at(facts, 2)))
    assert "┤" in at_80_columns(small, "history", "--plan", "quick")


def test_a_history_of_nothing_says_what_was_looked_for_and_what_to_change(small):
    done = command(small, "history", "--gpu", "GPU-none", "--plan", "quick")
    assert done.stderr.splitlines() == [
        f"no run in {small.directory} is of --gpu GPU-none --plan quick",
        "  leave one of these out; mpswatch archive ls lists what is there",
    ]
