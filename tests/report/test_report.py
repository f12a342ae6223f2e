"""The report: one file that needs nothing else, in which nothing is averaged across series or left out silently."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from datetime import timedelta
from pathlib import Path

import pytest

from mpswatch.archive import Archive
from mpswatch.archive.interference import Interferences
from mpswatch.documents import Reason
from mpswatch.journal import Journal
from mpswatch.report import gather, pictures, write

TESTS = Path(__file__).parents[1]


def _load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


facts = _load("report_facts", TESTS / "latest/facts.py")
_browser = _load("report_browser", TESTS / "page/browser.py")

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


@pytest.fixture
def neighbours(archive):
    """Interference of both GPUs within the period, twice of the first, and once long before it."""
    kept = Interferences(archive.directory)
    kept.write(facts.interference(hour(2), run_id="pairs-1"))
    kept.write(facts.interference(hour(8), run_id="pairs-2", failed={("75", "100"): Reason.DEADLINE}))
    kept.write(facts.interference(hour(8), run_id="pairs-3", gpu=facts.gpu(OTHER)))
    kept.write(facts.interference(hour(-400), run_id="pairs-0"))
    return kept


@pytest.fixture
def thorough(archive):
    """Ten thorough runs whose sustained figure alone falls, in the last two."""
    for number in range(10):
        scale = 0.8 if number >= 8 else 1.0
        archive.write(facts.thorough(hour(number) + MOMENT, run_id=f"thorough-{number}", scale=scale))


@pytest.fixture
def whole(archive, neighbours, thorough, tmp_path):
    """Where a report lies that has something of everything."""
    (tmp_path / "report.html").write_text(write(report_of(archive)))
    return (tmp_path / "report.html").as_uri()


@pytest.fixture(scope="module")
def browser():
    with _browser.Browser() as running:
        yield running


def report_of(archive, **span):
    return gather(archive, Journal(archive.directory), **{"until": hour(24), **span})


def test_each_gpu_has_its_own_series(archive):
    period = report_of(archive)
    assert sorted((one.series.gpu_uuid, len(one.runs)) for one in period.series) == [(facts.GPU, 20), (OTHER, 2)]


def test_interference_of_the_period_is_in_it_each_by_itself(archive, neighbours):
    period = report_of(archive, since=hour(0))
    assert [(one.gpu_uuid, [document.run_id for document in one.documents]) for one in period.interferences] == [
        (facts.GPU, ["pairs-2", "pairs-1"]),
        (OTHER, ["pairs-3"]),
    ]
    text = write(period)
    assert text.count(">29.0%<") == 3  # matmul under 25 % beside 75 %, in each of the three
    assert "pairs-0" not in text
    assert "unknown: deadline" in text
    assert "matmul 75 % beside others" in text
    named = [name for name in pictures(period) if name.startswith("interference")]
    assert named == [
        f"interference-mps-{run}-{number}.svg" for run in ("pairs-2", "pairs-1", "pairs-3") for number in (1, 2)
    ]


def test_an_interference_file_that_cannot_be_read_is_named(archive, neighbours):
    (bad, *_) = neighbours.between(hour(7), hour(24))
    document = json.loads(bad.read_text())
    document["schema_version"] = 2
    bad.write_text(json.dumps(document))
    period = report_of(archive)
    assert [line.split(": ")[0] for line in period.unreadable] == [bad.name]
    assert "schema_version 2 is not 1" in write(period)


def test_older_measurements_than_the_newest_ten_are_counted(archive):
    kept = Interferences(archive.directory)
    for number in range(13):
        kept.write(facts.interference(hour(number), run_id=f"pairs-{number}"))
    (one,) = report_of(archive).interferences
    assert (len(one.documents), one.left_out) == (10, 3)
    assert "3 older measurements of the period are left out" in write(report_of(archive))


def test_burst_and_sustained_are_two_ways_two_curves_and_two_judgements(archive, thorough):
    period = report_of(archive)
    (one,) = (one for one in period.series if one.series.plan == "thorough")
    standing = {cap.title: cap.standings[-1].standing for cap in one.caps}
    assert (standing["50 % burst"], standing["50 % sustained"]) == ("usual", "below")
    assert set(standing) == {f"{cap} % {words}" for cap in facts.CURVE for words in ("burst", "sustained")}
    text = write(period)
    assert "sustained TFLOPS by cap: run thorough-9 over 9 earlier runs" in text
    assert "burst TFLOPS by cap: run thorough-9 over 9 earlier runs" in text
    row = re.sub("<[^>]+>", "|", text.split('role="rowheader">100 % sustained</th>')[1].split("</tr>")[0])
    assert [cell for cell in row.split("|") if cell][:4] == ["647.0", "517.6 to 647.0", "1485", "690"]


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
    (ten,) = (svg for name, svg in svgs.items() if name.endswith("10-burst.svg") and svg.count('class="now"') == 2)
    assert ten.count("<circle") == 19


def test_an_empty_archive_gives_a_report_that_says_so(tmp_path):
    empty = Archive(tmp_path)
    empty.prepare()
    assert "none" in write(gather(empty, Journal(tmp_path)))


@pytest.mark.part("chromium")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nothing_of_it_is_clipped_and_nothing_overlaps(whole, browser, dark):
    clipped = (TESTS / "page/clipped.js").read_text()
    for width in (360, 768, 1200, 1600):
        browser.show(width, 900, dark=dark)
        browser.open(whole)
        assert json.loads(browser.run(clipped)) == [], width


@pytest.mark.part("chromium")
@pytest.mark.part("axe.min.js")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_in_it(whole, browser, dark):
    browser.show(1200, 900, dark=dark)
    browser.open(whole)
    browser.run(Path(shutil.which("axe.min.js")).read_text() + ";0")
    found = browser.run("axe.run(document).then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html)]))")
    assert found == []


@pytest.mark.part("chromium")
def test_each_picture_is_drawn_by_itself(archive, neighbours, thorough, browser, tmp_path):
    browser.show(1200, 900)
    drawn = """(() => {
        const root = document.documentElement, line = document.querySelector('polyline.now, rect.heat');
        const legend = [...document.querySelectorAll('svg > text')].map(t => t.getBBox().width);
        return root.tagName === 'svg' && root.getBoundingClientRect().width > 300 && Math.max(...legend) < 630
            && line.getBBox().width > 40 && getComputedStyle(line)[line.tagName === 'rect' ? 'fill' : 'stroke'];
    })()"""
    asked, complained = len(browser.requests), len(browser.complaints)
    svgs = pictures(report_of(archive))
    for name, svg in svgs.items():
        (tmp_path / name).write_text(svg)
        browser.open((tmp_path / name).as_uri())
        assert browser.run(drawn) in ("rgb(11, 92, 173)", "rgb(168, 28, 28)"), name
    assert len(browser.requests) - asked == len(svgs) == (5 + 1) * 2 + (10 + 2) + 4 * 2
    assert browser.complaints[complained:] == []


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


def test_a_pipe_is_written_into_and_a_link_followed_neither_is_replaced(archive, tmp_path):
    pipe, link, aim = tmp_path / "pipe", tmp_path / "link.html", tmp_path / "aim.html"
    os.mkfifo(pipe)
    link.symlink_to(aim)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        assert command("report", "--archive", archive.directory, "--output", pipe).returncode == 0
        assert reader.communicate(timeout=30)[0].startswith(b"<!doctype html>")
    assert pipe.is_fifo()
    assert command("report", "--archive", archive.directory, "--output", link).returncode == 0
    assert link.is_symlink()
    assert aim.read_text().startswith("<!doctype html>")
    assert {path.name for path in tmp_path.iterdir()} == {"archive", "pipe", "link.html", "aim.html"}


def test_what_cannot_be_written_is_said_in_one_line_with_a_remedy_and_leaves_nothing(archive, tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    taken = tmp_path / "taken"
    taken.touch()
    report = ("report", "--archive", archive.directory, "--output")
    for output in ("/proc/x", "/dev/full", tmp_path / "no" / "x.html", tmp_path / ("x" * 300)):
        done = command(*report, output)
        assert done.returncode == 1
        first, remedy = done.stderr.splitlines()
        assert first.startswith(f"mpswatch: cannot write {output}: ")
        assert remedy.startswith("  ")
    done = command(*report, tmp_path / "r.html", "--pictures", taken / "x")
    assert done.returncode == 1
    assert done.stderr.startswith(f"mpswatch: cannot write {taken / 'x'}: Not a directory\n")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", full], check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    try:
        done = command(*report, full / "r.html")
        assert done.returncode == 1
        assert done.stderr.startswith(
            f"mpswatch: cannot write {full / 'r.html'}: No space left on device\n  free space"
        )
        assert list(full.iterdir()) == []
    finally:
        subprocess.run(["umount", full], check=True)
    assert {path.name for path in tmp_path.iterdir()} == {"archive", "full", "taken", "r.html"}


def test_pictures_follow_links_and_do_not_replace_them(archive, tmp_path):
    arguments = (
        "report",
        "--archive",
        archive.directory,
        "--output",
        tmp_path / "r.html",
        "--pictures",
        tmp_path / "p",
    )
    assert command(*arguments).returncode == 0
    name = min((tmp_path / "p").iterdir())
    aim = name.rename(tmp_path / "aim.svg")
    aim.write_text("")
    name.symlink_to(aim)
    assert command(*arguments).returncode == 0
    assert name.is_symlink()
    assert aim.read_text().startswith("<?xml")
