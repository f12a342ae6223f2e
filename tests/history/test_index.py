"""The index says what the runs say, whatever happened to it or to them."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time

import pytest

from mpswatch.archive import ArchiveError
from mpswatch.history import index as index_module
from mpswatch.history import open_index, read_with_index, refreshing


def ids(archive):
    """The ids of all runs, by series, through the index."""
    return read_with_index(
        archive, lambda index: [[run.run_id for run in index.runs(series)] for series, _, _ in index.series()]
    )


def tflops(archive, cap="50"):
    def read(index):
        return [run.of(cap).tflops for series, _, _ in index.series() for run in index.runs(series)]

    return read_with_index(archive, read)


@pytest.fixture
def reads(monkeypatch):
    """Counts the runs that are opened to be indexed."""
    opened = []
    read = refreshing.read_run
    monkeypatch.setattr(refreshing, "read_run", lambda path: opened.append(path.name) or read(path))
    return opened


def test_runs_come_oldest_first_whenever_they_were_written(archive, run, written):
    written(run(3), run(1), run(2))
    assert ids(archive) == [["run-0001", "run-0002", "run-0003"]]


def test_a_run_is_read_once(archive, run, written, reads):
    written(run(1), run(2))
    assert ids(archive) == ids(archive)
    assert len(reads) == 2
    written(run(3))
    assert ids(archive) == [["run-0001", "run-0002", "run-0003"]]
    assert len(reads) == 3


def test_the_index_is_readable_by_whom_the_archive_is(archive, run, written):
    written(run(1))
    before = os.umask(0o022)
    try:
        assert ids(archive) == [["run-0001"]]
        index = archive.directory / "index.sqlite"
        assert index.stat().st_mode & 0o777 == 0o640
        index.write_bytes(b"broken" * 1000)
        assert ids(archive) == [["run-0001"]]
        assert index.stat().st_mode & 0o777 == 0o640  # made anew
    finally:
        os.umask(before)


def test_a_run_that_has_gone_is_gone(archive, run, written):
    paths = written(run(1), run(2))
    ids(archive)
    paths[0].unlink()
    assert ids(archive) == [["run-0002"]]


def test_a_file_that_was_changed_in_its_place_is_read_again(archive, run, written):
    (path,) = written(run(1, 436.0))
    assert tflops(archive) == [436.0]
    before = path.stat()
    text = path.read_text().replace("436.0", "111.0")
    with path.open("r+") as file:  # the same file, the same directory entry
        file.write(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert tflops(archive) == [111.0]


def test_a_file_changed_within_the_same_tick_right_after_it_was_read_is_seen(archive, run):
    path = archive.write(run(1, 436.0))
    assert tflops(archive) == [436.0]
    before = path.stat()
    path.write_text(path.read_text().replace("436.0", "111.0"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # same size, same time: only its youth gives it away
    assert tflops(archive) == [111.0]


@pytest.mark.parametrize("harm", ["removed", "emptied", "garbage", "other format", "no tables", "a page", "a row"])
def test_an_index_that_is_not_in_order_is_rebuilt(archive, run, written, harm):
    written(*(run(hour) for hour in range(40)))
    right = ids(archive)
    path = archive.directory / "index.sqlite"
    match harm:
        case "removed":
            path.unlink()
        case "emptied":
            path.write_bytes(b"")
        case "garbage":
            path.write_bytes(os.urandom(50_000))
        case "a page":
            size = path.stat().st_size
            with path.open("r+b") as file:
                file.seek(4096)
                file.write(os.urandom(size - 4096))
        case _:
            with sqlite3.connect(path) as db:
                if harm == "other format":
                    db.execute("PRAGMA user_version = 99")
                elif harm == "no tables":
                    db.execute("DROP TABLE runs")
                else:
                    db.execute("UPDATE runs SET facts = zeroblob(length(facts)) WHERE id = 7")
            db.close()
    assert ids(archive) == right
    assert ids(archive) == right


def test_an_archive_that_cannot_be_written_is_read_all_the_same(archive, run, written, monkeypatch):
    written(run(1), run(2))
    right = ids(archive)
    written(run(3))

    def refuse(directory):
        raise PermissionError(13, "not yours", str(directory))

    monkeypatch.setattr(index_module, "_lock", refuse)
    assert ids(archive) == [[*right[0], "run-0003"]]
    with sqlite3.connect(archive.directory / "index.sqlite") as db:
        assert db.execute("SELECT count(*) FROM runs").fetchone() == (2,)
    db.close()


def test_a_disk_without_room_for_the_index_does_not_hide_the_runs(archive, run, written, monkeypatch):
    written(run(1))
    real = refreshing._put

    def full(db, path, known):
        if db.execute("PRAGMA database_list").fetchone()[2]:
            raise sqlite3.OperationalError("database or disk is full")
        real(db, path, known)

    monkeypatch.setattr(refreshing, "_put", full)
    error = sqlite3.OperationalError("x")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    monkeypatch.setattr(index_module, "_is_broken", lambda _: False)
    assert ids(archive) == [["run-0001"]]


def test_files_that_are_no_runs_are_named_and_in_no_history(archive, run, written):
    paths = written(run(1), run(2), run(3))
    document = json.loads(paths[0].read_text())
    document["schema_version"] = 2
    paths[0].write_text(json.dumps(document))
    paths[1].write_text("{")
    (archive.runs / "notes.json").write_text("{}")

    def read(index):
        return index.count(), [(file.path, file.problem) for file in index.unreadable()]

    count, unreadable = read_with_index(archive, read)
    assert count == 1
    assert [path for path, _ in unreadable] == sorted(paths[:2])
    assert any("schema_version 2 is not 1" in problem for _, problem in unreadable)
    paths[1].write_bytes(paths[2].read_bytes())  # mended: the same run twice, in two files
    assert read_with_index(archive, read)[0] == 2
    assert ids(archive) == [["run-0003"]]


def test_what_must_not_be_compared_is_apart(archive, run, written, facts, protocol):
    other = "GPU-99999999-0000"
    written(
        run(1),
        run(2),
        run(3, gpu=other),
        run(4, protocol=protocol(plan="thorough")),
        run(5, protocol=protocol(dtype="bf16")),
        run(6, protocol=protocol(client_runtime="docker image")),
        run(7, protocol=protocol(backend="numpy")),
    )
    found = read_with_index(archive, lambda index: index.series())
    assert sorted(count for _, count, _ in found) == [1, 1, 1, 1, 1, 2]
    (only,) = read_with_index(archive, lambda index: index.series(gpu="GPU-9999"))
    assert only[0].gpu_uuid == other
    assert read_with_index(archive, lambda index: len(index.series(plan="thorough"))) == 1
    assert read_with_index(archive, lambda index: index.series(daemon="nobody")) == ()


def test_cells_of_another_protocol_than_the_runs_have_no_number(archive, run, written, facts):
    cells = (facts.cell("100"), facts.cell("50", size=1024), facts.cell("25"), facts.cell("25"))
    written(facts.sweep(cells=cells))
    (found,) = read_with_index(
        archive, lambda index: [run for series, _, _ in index.series() for run in index.runs(series)]
    )
    assert [(cap.cap, cap.tflops, cap.reason) for cap in found.caps] == [
        ("100", 742.0, None),
        ("50", None, "not_the_protocol"),
        ("25", None, "cap_twice"),
        ("25", None, "cap_twice"),
    ]


def test_a_directory_without_runs_is_named(tmp_path, archive):
    from mpswatch.archive import Archive

    with pytest.raises(ArchiveError, match="is no archive"):
        open_index(Archive(tmp_path / "nowhere"))


READER = """
import sys
from pathlib import Path
from mpswatch.archive import Archive
from mpswatch.history import read_with_index
archive = Archive(Path(sys.argv[1]))
for _ in range(5):
    n = read_with_index(archive, lambda index: sum(1 for s, _, _ in index.series() for _ in index.runs(s)))
print(n)
"""


def test_several_processes_build_and_read_one_index_at_a_time(archive, run, written):
    written(*(run(hour) for hour in range(120)))
    argv = [sys.executable, "-c", READER, str(archive.directory)]
    readers = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for hour in range(120, 130):
        archive.write(run(hour))
        time.sleep(0.01)
    for reader in readers:
        said, _ = reader.communicate(timeout=60)
        assert reader.returncode == 0
        assert 120 <= int(said) <= 130
    assert len(ids(archive)[0]) == 130


def test_a_process_killed_while_it_builds_leaves_nothing_wrong(archive, run, written, many):
    many.make(archive.directory, runs=1500, gpus=1)
    argv = [sys.executable, "-c", READER, str(archive.directory)]
    builder = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    path = archive.directory / "index.sqlite"
    until = time.monotonic() + 30
    while not (path.exists() and path.stat().st_size > 100_000):
        assert time.monotonic() < until
        time.sleep(0.01)
    builder.kill()
    builder.wait()
    assert len(ids(archive)[0]) == 1500


@pytest.mark.slow
def test_a_hundred_thousand_runs(tmp_path, archive, many):
    """The long form: docs/measurements/archive-index-2026-11-30.md has the figures."""
    many.make(archive.directory, runs=100_000, gpus=4)
    open_index(archive).close()
    before = time.perf_counter()
    found = read_with_index(archive, lambda index: sum(1 for _ in index.runs(index.series()[0][0])))
    assert found == 25_000
    assert time.perf_counter() - before < 2.0
