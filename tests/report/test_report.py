"""The report: one file that needs nothing else, in which nothing is averaged across series or left out silently."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from datetime import timedelta
from pathlib import Path

import pytest

from mpswatch.archive import Archive
from mpswatch.documents import Reason
from mpswatch.journal import Journal
from mpswatch.report import gather, pictures, write

_spec = importlib.util.spec_from_file_location("report_facts", Path(__file__).parents[1] / "latest/facts.py")
facts = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(facts)

OTHER = "GPU-99999999-0000"
MOMENT = timedelta(seconds=10)


def hour(number):
    return facts.NOON + timedelta(hours=number)


@pytest.fixture
def archive(tmp_path):
    """Two GPUs: twenty runs of one, slower at the end, with one cap failed once; two runs of the other."""
    made = Archive(tmp_path / "archive")
    made.prepare()
    journal = Journal(made.directory)
    for number in range(20):
        failed = {"10": Reason.DEADLINE} if number == 5 else {}
        share = 0.8 if number >= 18 else 1.0 + 0.001 * (number % 3)
        cells = tuple(
            facts.cell(
                cap, hour(number), failed=failed.get(cap), **({} if cap in failed else {"tflops": value * share})
            )
            for cap, (_, value) in facts.CURVE.items()
        )
        made.write(facts.sweep(hour(number) + MOMENT, run_id=f"run-{number}", cells=cells))
    for number in range(2):
        made.write(facts.sweep(hour(number) + MOMENT, run_id=f"other-{number}", gpu=facts.gpu(OTHER)))
    tenant = {"pid": 7, "start_ticks": 70, "kind": "foreign", "process_name": "<b>train.py</b>"}
    journal.append(facts.event("tenant_appeared", hour(3), gpu_uuid=facts.GPU, details=tenant))
    journal.append(facts.refusal(Reason.UID_MISMATCH, hour(4)))
    journal.append(facts.refusal(Reason.UID_MISMATCH, hour(5)))
    journal.append(facts.event("tenant_left", hour(6), gpu_uuid=facts.GPU, details=tenant))
    journal.append(facts.event("server_changed", hour(7), message="another server"))
    return made


def report_of(archive, **span):
    return gather(archive, Journal(archive.directory), **{"until": hour(24), **span})


def test_each_gpu_has_its_own_series(archive):
    period = report_of(archive)
    assert sorted((one.series.gpu_uuid, len(one.runs)) for one in period.series) == [(facts.GPU, 20), (OTHER, 2)]


def test_the_two_slow_runs_at_the_end_are_said(archive):
    period = report_of(archive)
    (fifty,) = (cap for one in period.series if len(one.runs) == 20 for cap in one.caps if cap.cap == "50")
    assert [found.standing for found in fifty.standings][-3:] == ["usual", "slower_once", "below"]
    assert [found.standing for found in fifty.standings][:8] == ["unknown"] * 8


def test_a_run_is_judged_by_what_came_before_the_period_too(archive):
    period = report_of(archive, since=hour(18))
    (fifty,) = (cap for one in period.series for cap in one.caps if cap.cap == "50")
    assert [found.standing for found in fifty.standings] == ["slower_once", "below"]


def test_the_period_bounds_runs_and_events(archive):
    period = report_of(archive, since=hour(4), until=hour(6))
    assert sorted(run.run_id for one in period.series for run in one.runs) == ["run-4", "run-5"]
    assert [event.kind for event in period.events] == ["sweep_refused", "sweep_refused"]
    assert [(stay.since, stay.until) for stay in period.stays] == [(hour(3), hour(6))]  # there the whole time


def test_gaps_refusals_and_unreadable_files_are_in_it(archive):
    (archive.runs / "h_GPU-1_20261130T120000Z_mps_quick_bad.json").write_text('{"schema_version": 7}')
    text = write(report_of(archive))
    assert "deadline" in text
    assert "uid_mismatch" in text
    assert "another server" in text
    assert "h_GPU-1_20261130T120000Z_mps_quick_bad.json" in text


def test_it_needs_nothing_and_runs_nothing(archive):
    text = write(report_of(archive))
    assert "<script" not in text
    assert not re.search(r"""(?:src|href)=["'](?!data:)""", text)
    assert set(re.findall(r"https?://[^\s\"'<>]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "<b>train.py" not in text
    assert "&lt;b&gt;train.py" in text
    assert "SIMULATED" not in text


def test_a_run_without_a_number_is_a_gap_in_the_line(archive):
    period = report_of(archive)
    svgs = pictures(period)
    for svg in svgs.values():
        ET.fromstring(svg)  # noqa: S314  # our own
    (ten,) = (svg for name, svg in svgs.items() if name.endswith("10-tflops.svg") and svg.count('class="now"') == 2)
    assert ten.count("<circle") == 19


def test_an_empty_archive_gives_a_report_that_says_so(tmp_path):
    empty = Archive(tmp_path)
    empty.prepare()
    assert "none" in write(gather(empty, Journal(tmp_path)))


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "mpswatch", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_commands_work_on_it(archive, tmp_path):
    output = tmp_path / "report.html"
    done = command("report", "--archive", archive.directory, "--output", output, "--pictures", tmp_path / "svg")
    assert (done.returncode, done.stderr.split(": ", 1)[1]) == (0, "22 runs of 2 series, 5 events\n")
    assert output.read_text().startswith("<!doctype html>")
    assert len(list((tmp_path / "svg").iterdir())) == 12

    done = command("history", "--archive", archive.directory, "--gpu", facts.GPU, "--cap", "50")
    assert done.returncode == 0
    assert "below" in done.stdout
    assert "▼" in done.stdout
    assert OTHER not in done.stdout

    done = command("compare", "--archive", archive.directory, "run-17", "run-19")
    assert done.returncode == 0
    assert "-20." in done.stdout
    done = command("compare", "--archive", archive.directory, "run-17", "other-1")
    assert "no ratio is formed" in done.stdout
    assert "%" not in done.stdout.split("cap ", 1)[1].split("│", 1)[0]
    done = command("compare", "--archive", archive.directory, "run-", "run-1")
    assert (done.returncode, "begins several runs" in done.stderr) == (1, True)


@pytest.mark.parametrize("arguments", [("--since", "yesterday"), ("--since", "1d", "--until", "2d")])
def test_a_time_that_is_none_is_a_usage_error(archive, tmp_path, arguments):
    done = command("report", "--archive", archive.directory, "--output", tmp_path / "x.html", *arguments)
    assert done.returncode == 2
    assert not (tmp_path / "x.html").exists()
