"""A journal line is whole or left out, whoever else is writing and whenever the power goes."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta

import pytest

from mpswatch.archive import ArchiveError
from mpswatch.documents import Reason
from mpswatch.journal import Journal

APPENDER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from mpswatch.documents import Event
from mpswatch.journal import Journal
journal = Journal(Path(sys.argv[1]), rotate_bytes=20_000, keep=8)
for number in range(100):
    journal.append(Event(kind="tenant_appeared", at=datetime.now(UTC), host=sys.argv[2], message=str(number)))
"""


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path)


def test_events_come_back_oldest_first(journal, facts):
    written = [facts.event("tenant_appeared", facts.NOON + timedelta(seconds=number)) for number in range(5)]
    for event in written:
        journal.append(event)
    assert list(journal.read()) == written
    assert list(journal.read(limit=2)) == written[-2:]


def test_nothing_written_is_nothing_read(journal):
    assert journal.read() == ()
    assert journal.newest_sweep_started() is None


def test_a_cut_line_is_left_out_and_the_next_one_stands_alone(journal, facts):
    journal.append(facts.event("daemon_down"))
    with journal.path.open("ab") as file:
        file.write(b'{"kind": "daemon_up", "at": "2026-')
    assert [event.kind for event in journal.read()] == ["daemon_down"]
    journal.append(facts.event("tenant_left"))
    assert [event.kind for event in journal.read()] == ["daemon_down", "tenant_left"]


def test_a_journal_cut_at_any_byte_yields_every_line_before(journal, facts):
    for _ in range(3):
        journal.append(facts.event("tenant_left"))
    data = journal.path.read_bytes()
    for length in range(0, len(data), 7):
        journal.path.write_bytes(data[:length])
        assert len(journal.read()) in (data[:length].count(b"\n"), data[:length].count(b"\n") + 1)
        journal.append(facts.event("daemon_up"))
        assert journal.read()[-1].kind == "daemon_up"


def test_foreign_lines_are_left_out(journal, facts):
    journal.path.write_bytes(b'\xff\xfe\n[]\n{"kind": "daemon_up"}\nnull\n\n')
    journal.append(facts.event("tenant_left"))
    assert [event.kind for event in journal.read()] == ["tenant_left"]


def test_rotation_keeps_the_newest_files_and_loses_no_line_among_them(tmp_path, facts):
    journal = Journal(tmp_path, rotate_bytes=1000, keep=3)
    for number in range(60):
        journal.append(facts.event("tenant_left", message=str(number)))
    names = {path.name for path in tmp_path.iterdir()}
    assert names - {"journal.jsonl"} == {"journal.1.jsonl", "journal.2.jsonl", "journal.3.jsonl"}
    numbers = [int(event.message) for event in journal.read()]
    assert numbers == list(range(numbers[0], 60))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 5000


def test_two_processes_append_and_rotate_without_losing_a_line(tmp_path):
    others = [subprocess.Popen([sys.executable, "-c", APPENDER, tmp_path, name]) for name in ("first", "second")]
    assert [other.wait() for other in others] == [0, 0]
    events = Journal(tmp_path, rotate_bytes=20_000, keep=8).read()
    for name in ("first", "second"):
        assert [int(event.message) for event in events if event.host == name] == list(range(100))


def test_the_newest_start_is_found_in_older_files_too(tmp_path, facts):
    journal = Journal(tmp_path, rotate_bytes=1000, keep=3)
    journal.append(facts.event("sweep_started", gpu_uuid=facts.GPU, run_id="a"), durable=True)
    journal.append(facts.event("sweep_started", gpu_uuid="GPU-other", run_id="b"), durable=True)
    for _ in range(8):
        journal.append(facts.event("tenant_left"))
    assert not journal.path.exists() or b"sweep_started" not in journal.path.read_bytes()
    assert journal.newest_sweep_started().run_id == "b"


def test_a_removed_directory_is_an_error_with_a_remedy(tmp_path, facts):
    journal = Journal(tmp_path / "gone")
    with pytest.raises(ArchiveError) as caught:
        journal.append(facts.event("daemon_up"))
    assert caught.value.reason == Reason.ARCHIVE_WRITE_FAILED
    assert "create the directory again" in caught.value.remedy


def test_a_full_disk_leaves_no_half_line(tmp_path, facts):
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", directory]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this user may not mount a small file system")
    try:
        journal = Journal(directory)
        written = []

        def fill():
            while True:
                journal.append(facts.event("tenant_left"))
                written.append(1)

        with pytest.raises(ArchiveError) as caught:
            fill()
        assert "free space" in caught.value.remedy
        assert journal.path.read_bytes().endswith(b"}\n")
        assert len(journal.read()) == len(written) > 0
    finally:
        subprocess.run(["umount", directory], check=True)


def test_another_process_that_holds_the_lock_delays_a_line_and_does_not_lose_it(tmp_path, facts):
    journal = Journal(tmp_path)
    journal.append(facts.event("daemon_up"))
    script = (
        "import fcntl, os, sys, time\n"
        f"fd = os.open({str(journal.path)!r}, os.O_RDONLY)\n"
        "fcntl.flock(fd, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        journal.append(facts.event("tenant_left"))
        other.stdin.close()
        other.wait()
    assert [event.kind for event in journal.read()] == ["daemon_up", "tenant_left"]
