"""What other processes do on our disk: every run that they archive is seen once, whichever began first."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from datetime import timedelta

import pytest

from mpswatch.archive import Archive
from mpswatch.archive.interference import Interferences
from mpswatch.daemon.disk import Disk
from mpswatch.documents import to_json

SWEEPING = """
import sys
from pathlib import Path
from mpswatch.archive import Archive
from mpswatch.documents import SweepDocument, from_json
document = from_json(Path(sys.argv[2]).read_bytes(), SweepDocument)
print("sweeping", flush=True)
sys.stdin.readline()
Archive(Path(sys.argv[1])).write(document)
print("archived", flush=True)
"""
OTHER_GPU = "GPU-99999999-1111-2222-3333-444455556666"


@pytest.fixture
def archive(tmp_path):
    made = Archive(tmp_path / "archive")
    made.prepare()
    return made


@pytest.fixture
def disk(archive):
    return Disk(archive, Interferences(archive.directory))


@pytest.fixture
def another_process(archive, tmp_path):
    """Begin a sweep in a process of its own; calling what comes back ends it, with its run in the archive."""
    with contextlib.ExitStack() as running:

        def begin(document):
            file = tmp_path / f"{document.run_id}.json"
            file.write_bytes(to_json(document))
            argv = [sys.executable, "-c", SWEEPING, str(archive.directory), str(file)]
            program = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            running.enter_context(program)
            assert program.stdout.readline() == "sweeping\n"

            def end():
                program.stdin.write("\n")
                program.stdin.flush()
                assert program.stdout.readline() == "archived\n"

            return end

        yield begin


def ids(runs):
    return [run.run_id for run in runs]


def test_of_two_processes_the_one_that_began_first_and_ended_last_is_seen_too_and_each_once(
    archive, disk, latest, another_process, facts
):
    minutes = [facts.NOON + timedelta(minutes=number) for number in range(11)]
    first = facts.sweep(minutes[9], started_at=minutes[0], run_id="first", gpu=facts.gpu(OTHER_GPU))
    second = facts.sweep(minutes[5], started_at=minutes[4], run_id="second")
    end_first, end_second = another_process(first), another_process(second)
    published = []

    def look():
        seen = disk.look().runs
        published.extend(latest.restore(seen, now=minutes[10]))
        return ids(seen)

    assert look() == []
    end_second()
    assert look() == ["second"]
    assert look() == []
    end_first()
    assert look() == ["first"]
    assert look() == []
    assert ids(published) == ["second", "first"]
    assert {health.document.run_id for health in latest.view().sweeps.values()} == {"first", "second"}
    assert not latest.view().outcomes  # other processes' outcomes are not ours to count


def test_runs_of_one_series_that_came_together_are_all_seen_and_the_newest_is_published(archive, disk, latest, facts):
    for minutes, name in ((0, "r0"), (1, "r1"), (2, "r2")):
        archive.write(facts.sweep(facts.NOON + timedelta(minutes=minutes), run_id=name))
    seen = disk.look().runs
    assert sorted(ids(seen)) == ["r0", "r1", "r2"]
    taken = latest.restore(seen, now=facts.NOON + timedelta(minutes=3))
    assert ids(taken) == ["r0", "r1", "r2"]
    assert [run.run_id for run in latest.view().runs] == ["r2", "r1", "r0"]
    (health,) = latest.view().sweeps.values()
    assert health.document.run_id == "r2"


def test_a_run_from_before_a_clock_was_set_back_does_not_hide_the_next_one(archive, disk, facts):
    archive.write(facts.sweep(facts.NOON + timedelta(days=400), run_id="of-the-future"))
    assert ids(disk.look().runs) == ["of-the-future"]
    archive.write(facts.sweep(facts.NOON, run_id="of-today"))
    assert ids(disk.look().runs) == ["of-today"]


def test_what_is_there_when_a_daemon_starts_is_no_news(archive, facts):
    archive.write(facts.sweep(run_id="before"))
    assert Disk(archive, Interferences(archive.directory)).look().runs == ()


def test_a_run_that_cannot_be_read_is_named_and_does_not_hide_the_others(archive, disk, facts):
    broken = archive.write(facts.sweep(facts.NOON, run_id="broken"))
    broken.write_bytes(b"{")
    archive.write(facts.sweep(facts.NOON + timedelta(minutes=1), run_id="whole"))
    seen = disk.look()
    assert ids(seen.runs) == ["whole"]
    (error,) = seen.unreadable
    assert str(broken) in error.detail
    assert disk.look().unreadable == ()


def test_of_an_archive_that_was_copied_here_only_the_newest_are_read(archive, disk, facts):
    for minutes in range(30):
        archive.write(facts.sweep(facts.NOON + timedelta(minutes=minutes), run_id=f"r{minutes}"))
    assert ids(disk.look().runs) == [f"r{minutes}" for minutes in range(29, 19, -1)]
    assert disk.look().runs == ()


def test_the_archives_size_is_looked_at_when_its_directory_changes_and_unknown_when_it_is_gone(archive, disk):
    def size():
        found = disk.look()
        return found.total_bytes if found.measured else "as before"

    (archive.runs / "of-another-process").write_bytes(b"12345")
    assert size() == 5
    (archive.runs / "of-another-process").unlink()
    archive.runs.rmdir()
    assert [size(), size()] == [None, None]
    archive.runs.mkdir()
    assert size() == 0
