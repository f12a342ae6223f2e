"""A run is complete under its name, or absent: through crashes, full disks, strangers' files and symbolic links."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import pytest

from mpswatch.archive import Archive, ArchiveError, read_run
from mpswatch.documents import Reason, to_json

WRITER = """
import sys, uuid
from pathlib import Path
import msgspec
from mpswatch.archive import Archive
from mpswatch.documents import SweepDocument, from_json
document = from_json(Path(sys.argv[2]).read_bytes(), SweepDocument)
archive = Archive(Path(sys.argv[1]))
archive.prepare()
print("ready", flush=True)
while True:
    archive.write(msgspec.structs.replace(document, run_id=uuid.uuid4().hex))
"""


@pytest.fixture
def archive(tmp_path):
    made = Archive(tmp_path / "archive")
    made.prepare()
    return made


def test_a_run_reads_back_as_it_was_written(archive, facts):
    document = facts.sweep()
    path = archive.write(document)
    assert archive.read(path) == document
    assert path.name == "gpu-host_GPU-4a1bc0de_20261130T115958Z_mps_quick_r1.json"
    assert path.read_text().startswith("{\n  ")


def test_a_compressed_run_reads_back_too(tmp_path, facts):
    archive = Archive(tmp_path, gzip=True)
    archive.prepare()
    path = archive.write(facts.sweep())
    assert path.name.endswith(".json.gz")
    assert json.loads(gzip.decompress(path.read_bytes()))["run_id"] == "r1"
    assert archive.read(path) == facts.sweep()


def test_files_are_for_their_owner_and_group(archive, facts):
    old = os.umask(0)
    try:
        path = archive.write(facts.sweep())
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert stat.S_IMODE(archive.runs.stat().st_mode) == 0o750


@pytest.mark.parametrize("host", ["../../etc", "a/b_c", "host\nname", "", ".hidden", "ü" * 300])
def test_no_host_or_daemon_name_leaves_the_directory_or_breaks_the_name(archive, facts, host):
    path = archive.write(facts.sweep(host=host, mps=None, pipe_directory="/var/run/../mps pipe"))
    assert path.parent == archive.runs
    assert [entry.path for entry in archive.entries()] == [path]
    assert archive.read(path).host == host


def test_entries_come_newest_first_by_name_alone(archive, facts):
    for hours in (2, 0, 5, 1):
        archive.write(facts.sweep(facts.NOON + timedelta(hours=hours), run_id=f"r{hours}"))
    for path in archive.runs.iterdir():
        path.write_bytes(b"never opened")
    assert [entry.run_id for entry in archive.entries()] == ["r5", "r2", "r1", "r0"]
    assert next(archive.entries()).started == facts.NOON + timedelta(hours=5, seconds=-2)


def test_the_newest_run_of_each_series_is_found_without_opening_the_others(archive, facts):
    for hour in range(30):
        archive.write(facts.sweep(facts.NOON + timedelta(hours=hour), run_id=f"old{hour}")).write_bytes(b"junk")
    archive.write(facts.sweep(facts.NOON + timedelta(days=2), run_id="quick"))
    archive.write(facts.sweep(facts.NOON, run_id="thorough", plan="thorough"))
    archive.write(facts.sweep(facts.NOON, run_id="other", gpu=facts.gpu("GPU-99999999-0000")))
    runs, errors = archive.latest()
    assert {run.run_id for run in runs} == {"quick", "thorough", "other"}
    assert errors == ()


def test_a_partial_newest_run_comes_with_the_newest_complete_one(archive, facts):
    archive.write(facts.sweep(facts.NOON, run_id="older"))
    archive.write(facts.sweep(facts.NOON + timedelta(hours=1), run_id="complete"))
    for hours in (2, 3):
        at = facts.NOON + timedelta(hours=hours)
        archive.write(facts.sweep(at, run_id=f"partial{hours}", failed={"10": Reason.DEADLINE}))
    runs, _ = archive.latest()
    assert [run.run_id for run in runs] == ["partial3", "complete"]


def test_bad_files_are_named_with_the_place_and_skipped(archive, facts):
    archive.write(facts.sweep(run_id="good"))
    newest = facts.NOON + timedelta(hours=1)
    bad = archive.write(facts.sweep(newest, run_id="bad"))
    bad.write_bytes(bad.read_bytes().replace(b'"iters": 80', b'"iters": "eighty"'))
    runs, errors = archive.latest()
    assert [run.run_id for run in runs] == ["good"]
    assert len(errors) == 1
    assert errors[0].reason == Reason.ARCHIVE_READ_FAILED
    assert str(bad) in errors[0].detail
    assert "$.cells[0].iters" in errors[0].detail or "$.protocol.iters" in errors[0].detail


def test_foreign_files_are_named_and_left_alone(archive, facts):
    stranger = archive.runs / "notes.json"
    stranger.write_text("[]")
    archive.write(facts.sweep())
    assert archive.foreign() == (stranger,)
    assert len(list(archive.entries())) == 1
    assert archive.latest()[1] == ()


def test_the_reference_document_is_a_run(archive):
    reference = Path(__file__).parents[1] / "reference/mps-cap-sweep.v1.json"
    assert read_run(reference).complete_sweep


def test_symbolic_links_are_not_followed(archive, facts, tmp_path):
    path = archive.write(facts.sweep())
    outside = tmp_path / "outside.json"
    path.rename(outside)
    path.symlink_to(outside)
    assert list(archive.entries()) == []
    with pytest.raises(ArchiveError, match="cannot read"):
        archive.read(path)


def test_what_is_no_regular_file_does_not_hang_a_reader(archive):
    pipe = archive.runs / "pipe.json"
    os.mkfifo(pipe)
    with pytest.raises(ArchiveError, match="not a regular file"):
        archive.read(pipe)


def test_a_decompression_bomb_is_refused(archive, monkeypatch):
    monkeypatch.setattr("mpswatch.archive.files.MAX_DOCUMENT_BYTES", 1 << 20)
    bomb = archive.runs / "bomb.json.gz"
    bomb.write_bytes(gzip.compress(b" " * (1 << 24)))
    with pytest.raises(ArchiveError, match="larger than any run"):
        archive.read(bomb)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_run_cut_at_any_byte_is_named_and_every_other_still_read(tmp_path, facts, compressed):
    archive = Archive(tmp_path, gzip=compressed)
    archive.prepare()
    archive.write(facts.sweep(run_id="whole"))
    cut = archive.write(facts.sweep(facts.NOON + timedelta(hours=1), run_id="cut"))
    data = cut.read_bytes()
    rng = random.Random(1)
    for length in {0, 1, len(data) - 2, *rng.sample(range(len(data) - 1), 60)}:
        cut.write_bytes(data[:length])
        with pytest.raises(ArchiveError):
            archive.read(cut)
        runs, errors = archive.latest()
        assert [run.run_id for run in runs] == ["whole"]
        assert len(errors) == 1


def test_kill_at_any_moment_leaves_complete_runs_only(tmp_path, facts):
    source = tmp_path / "document.json"
    source.write_bytes(to_json(facts.sweep()))
    directory = tmp_path / "archive"
    rng = random.Random(2)
    for _ in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, directory, source], stdout=subprocess.PIPE, start_new_session=True
        )
        assert writer.stdout.readline() == b"ready\n"
        time.sleep(rng.uniform(0.01, 0.1))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    archive = Archive(directory)
    entries = list(archive.entries())
    assert len(entries) > 4
    for entry in entries:
        assert archive.read(entry.path).run_id == entry.run_id
    archive.prepare()
    assert archive.foreign() == ()
    assert not [path for path in archive.runs.iterdir() if path.name.startswith(".")]


def test_what_a_crash_left_is_removed_but_not_what_another_process_writes(archive, tmp_path):
    left = archive.runs / ".writing-left"
    left.write_bytes(b"{")
    held = archive.runs / ".writing-held"
    script = (
        "import fcntl, os, sys\n"
        f"fd = os.open({str(held)!r}, os.O_CREAT | os.O_WRONLY)\n"
        "fcntl.flock(fd, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        assert archive.prepare() == (left,)
        assert held.exists()
        other.stdin.close()
        other.wait()
    assert archive.prepare() == (held,)


def test_a_removed_directory_is_an_error_with_a_remedy(archive, facts):
    archive.runs.rmdir()
    with pytest.raises(ArchiveError) as caught:
        archive.write(facts.sweep())
    assert caught.value.reason == Reason.ARCHIVE_WRITE_FAILED
    assert str(archive.runs) in caught.value.detail
    assert "create the directory again" in caught.value.remedy
    assert list(archive.entries()) == []


def test_each_try_to_write_fails_in_the_same_words_so_that_the_log_says_it_once(archive, facts):
    archive.runs.rmdir()
    said = set()
    for _ in range(3):
        with pytest.raises(ArchiveError) as caught:
            archive.write(facts.sweep())
        said.add(str(caught.value))
    assert len(said) == 1


def test_a_file_in_place_of_the_directory_is_an_error_with_a_remedy(tmp_path):
    (tmp_path / "archive").write_text("")
    archive = Archive(tmp_path / "archive")
    with pytest.raises(ArchiveError) as caught:
        archive.prepare()
    assert "must be a directory" in caught.value.remedy
    assert archive.writable().remedy == caught.value.remedy


AS_NOBODY = """
import os, sys
from pathlib import Path
from mpswatch.archive import Archive, ArchiveError
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
error = Archive(Path(sys.argv[1])).writable()
print(error.reason, "|", error.detail, "|", error.remedy)
"""
"""For root, permissions do not count: tests that may run as root ask somebody else."""


def test_a_directory_that_is_not_ours_is_an_error_with_a_remedy():
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        archive = Archive(Path(directory) / "archive")
        archive.prepare()
        for path in (archive.directory, archive.runs):
            path.chmod(0o555)
        said = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, archive.directory], capture_output=True, text=True, check=True
        )
        reason, detail, remedy = said.stdout.strip().split(" | ")
        assert reason == "archive_write_failed"
        assert "Permission denied" in detail
        assert remedy == "give the directory to the user that mpswatch runs as"
        for path in (archive.directory, archive.runs):
            path.chmod(0o755)


def test_a_writable_directory_says_so_and_holds_nothing_afterwards(archive):
    assert archive.writable() is None
    assert list(archive.runs.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 96 KiB, where this user may mount one."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", directory], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("this user may not mount a small file system")
    yield directory
    subprocess.run(["umount", directory], check=True)


def test_a_full_disk_is_an_error_with_a_remedy_and_leaves_nothing_half_written(small_disk, facts):
    archive = Archive(small_disk)
    archive.prepare()
    written = []

    def fill():
        while True:
            written.append(archive.write(facts.sweep(run_id=f"r{len(written)}")))

    with pytest.raises(ArchiveError) as caught:
        fill()
    assert written
    assert "No space left" in caught.value.detail
    assert "free space" in caught.value.remedy
    assert sorted(archive.runs.iterdir()) == sorted(written)
    written[0].unlink()
    archive.write(facts.sweep(run_id="afterwards"))


def test_a_read_only_file_system_is_an_error_with_a_remedy(small_disk, facts):
    archive = Archive(small_disk)
    archive.prepare()
    archive.write(facts.sweep())
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(ArchiveError) as caught:
        archive.write(facts.sweep(run_id="r2"))
    assert "remount" in caught.value.remedy
    assert len(archive.latest()[0]) == 1


def test_old_runs_go_but_never_the_newest_complete_one_of_a_gpu(tmp_path, facts):
    archive = Archive(tmp_path, keep_age=timedelta(days=1))
    archive.prepare()
    archive.write(facts.sweep(run_id="ancient"))
    archive.write(facts.sweep(facts.NOON + timedelta(hours=1), run_id="complete"))
    archive.write(facts.sweep(facts.NOON + timedelta(hours=2), run_id="partial", failed={"10": Reason.DEADLINE}))
    archive.write(facts.sweep(facts.NOON, run_id="other", gpu=facts.gpu("GPU-99999999-0000")))
    stranger = archive.runs / "notes.txt"
    stranger.write_text("mine")
    removed = archive.retain(facts.NOON + timedelta(days=30))
    assert len(removed) == 2
    assert {entry.run_id for entry in archive.entries()} == {"complete", "other"}
    assert stranger.exists()


def test_over_size_the_oldest_go_first(tmp_path, facts):
    archive = Archive(tmp_path)
    archive.prepare()
    for hour in range(10):
        archive.write(facts.sweep(facts.NOON + timedelta(hours=hour), run_id=f"r{hour}"))
    each = archive.usage() // 10
    bounded = Archive(tmp_path, keep_bytes=3 * each + each // 2)
    bounded.retain(facts.NOON)
    assert [entry.run_id for entry in bounded.entries()] == ["r9", "r8", "r7"]
    assert bounded.usage() <= 3 * each + each // 2


def test_without_bounds_nothing_is_removed(archive, facts):
    archive.write(facts.sweep())
    assert archive.retain(facts.NOON + timedelta(days=4000)) == ()


def test_a_rehearsal_does_not_write_beside_measured_runs(archive, facts):
    archive.write(facts.sweep())
    rehearsal = Archive(archive.directory, simulated=True)
    with pytest.raises(ArchiveError, match="holds measured runs"):
        rehearsal.prepare()
    with pytest.raises(ArchiveError, match="does not belong"):
        rehearsal.write(facts.sweep())
    with pytest.raises(ArchiveError, match="does not belong"):
        archive.write(facts.sweep(simulated=True))


def test_a_measured_run_under_any_name_keeps_a_rehearsal_out(archive, facts):
    (archive.runs / "renamed.json").write_bytes(to_json(facts.sweep()))
    assert archive.holds_measured()
    assert not archive.holds_simulated()


def test_a_real_daemon_does_not_read_back_what_a_rehearsal_wrote(tmp_path, facts):
    rehearsal = Archive(tmp_path, simulated=True)
    rehearsal.prepare()
    path = rehearsal.write(facts.sweep(simulated=True))
    assert path.name.endswith(".simulated.json")
    assert rehearsal.latest()[0] == (rehearsal.read(path),)
    assert Archive(tmp_path).latest() == ((), ())
    assert Archive(tmp_path).holds_simulated()


@pytest.mark.slow
def test_the_newest_of_a_hundred_thousand_runs_is_found_within_a_second_of_work(archive, facts):
    name = archive.write(facts.sweep(run_id="newest")).name
    for number in range(100_000):
        day, second = divmod(number, 86400)
        stamp = f"202501{day + 1:02}T{second // 3600:02}{second // 60 % 60:02}{second % 60:02}Z"
        (archive.runs / name.replace("20261130T115958Z", stamp).replace("newest", f"n{number}")).touch()
    before = time.process_time()
    runs, errors = archive.latest()
    took = time.process_time() - before
    assert [run.run_id for run in runs] == ["newest"]
    assert errors == ()
    assert took < 1.5
