"""server.log as it grows, is rotated, truncated, cut and flooded: each fault is seen once."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from mpswatch.documents import Reason
from mpswatch.mps.server_log import LogError, ServerLog


@pytest.fixture
def log(tmp_path):
    return tmp_path / "server.log"


def fault(pid, *, ago=0.0):
    at = datetime.now().astimezone() - timedelta(seconds=ago)
    stamp = f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d}"
    return f"[{stamp} Server   633] Client {{PID: {pid}, Context: 1}} encountered a fatal GPU error\n"


def write(path, text):
    with path.open("a") as file:
        file.write(text)


def pids(faults):
    return [int(line.split("PID: ")[1].split(",")[0]) for line in faults.new]


def test_what_was_there_before_is_not_new_but_its_age_is_known(log, tmp_path):
    write(log, fault(1, ago=700) + fault(2, ago=300) + "[2026-11-30 16:22:33.959 Server   633] NEW CLIENT\n")
    follower = ServerLog(tmp_path)
    first = follower.look()
    assert first.new == ()
    assert first.newest_age == pytest.approx(300, abs=5)
    write(log, fault(3))
    assert pids(follower.look()) == [3]
    assert follower.look().new == ()


def test_a_log_that_comes_later_is_read_from_its_start(log, tmp_path):
    follower = ServerLog(tmp_path)
    with pytest.raises(LogError) as caught:
        follower.look()
    assert caught.value.reason is Reason.NOT_RECORDED
    write(log, fault(1))
    assert pids(follower.look()) == [1]


def test_half_a_line_waits_for_its_other_half(log, tmp_path):
    write(log, "")
    follower = ServerLog(tmp_path)
    follower.look()
    line = fault(7)
    write(log, line[:50])
    assert follower.look().new == ()
    write(log, line[50:] + fault(8))
    assert pids(follower.look()) == [7, 8]


def test_rotation_by_renaming_loses_nothing(log, tmp_path):
    write(log, fault(1))
    follower = ServerLog(tmp_path)
    follower.look()
    write(log, fault(2))
    log.rename(tmp_path / "server.log.1")
    assert pids(follower.look()) == [2]
    write(tmp_path / "server.log.1", fault(3))
    write(log, fault(4))
    assert pids(follower.look()) == [3, 4]
    write(log, fault(5))
    assert pids(follower.look()) == [5]


def test_truncation_in_place_is_followed(log, tmp_path):
    write(log, fault(1) * 10)
    follower = ServerLog(tmp_path)
    follower.look()
    log.write_text(fault(2))
    assert pids(follower.look()) == [2]


def test_a_flood_is_read_in_its_newest_part_only(log, tmp_path):
    write(log, "")
    follower = ServerLog(tmp_path)
    follower.look()
    write(log, fault(1) + "x" * (3 << 20) + "\n" + fault(2))
    assert pids(follower.look()) == [2]


def test_what_is_no_text_does_not_get_out(log, tmp_path):
    log.write_bytes(b"")
    follower = ServerLog(tmp_path)
    follower.look()
    log.write_bytes(b"\xff\x1b[2J Client {PID: 9, Context: 1} encountered a fatal GPU error " + b"y" * 1000 + b"\n")
    (line,) = follower.look().new
    assert line.isprintable()
    assert len(line) <= 200


def test_a_log_that_is_no_file_is_not_read(tmp_path):
    (tmp_path / "server.log").mkdir()
    with pytest.raises(LogError):
        ServerLog(tmp_path).look()


@pytest.mark.skipif(os.geteuid() != 0, reason="a directory that this user may not enter needs another user")
def test_a_log_that_may_not_be_read_is_a_permission():
    script = (
        "import os, sys; from pathlib import Path; from mpswatch.mps.server_log import LogError, ServerLog\n"
        "os.setuid(65534)\n"
        "try: ServerLog(Path(sys.argv[1])).look()\n"
        "except LogError as error: print(error.reason.value)\n"
    )
    with tempfile.TemporaryDirectory() as folder:  # only root may enter it
        (Path(folder) / "server.log").write_text("")
        done = subprocess.run([sys.executable, "-c", script, folder], capture_output=True, text=True, check=False)
    assert done.stdout == "permission\n", done.stderr
