"""The folder of the measuring client's program: none of a dead owner stays, none that is in use goes."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

OWNER = (
    "import sys; from mpswatch.daemon.work_directory import make_work_directory;"
    "print(make_work_directory(), flush=True); sys.stdin.read()"
)


@pytest.fixture
def owner(tmp_path):
    """Start a process that has a folder below `tmp_path`, with `files` in it; gives the process and the folder."""
    started = []

    def start():
        process = subprocess.Popen(
            [sys.executable, "-c", OWNER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
        )
        started.append(process)
        return process, tmp_path / process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.communicate()


def killed(process):
    process.send_signal(signal.SIGKILL)
    process.wait()


def test_what_a_killed_owner_left_goes_with_the_next_start_and_what_is_in_use_stays(owner, tmp_path):
    dead, left = owner()
    _, used = owner()
    killed(dead)
    assert left.is_dir()
    _, mine = owner()
    assert not left.exists()
    assert sorted(tmp_path.iterdir()) == sorted([used, mine])


def test_a_program_is_removed_once_no_process_has_it_on_its_command_line(owner):
    dead, left = owner()
    program = left / "mpswatch-client-0.pyz"
    program.write_text("import sys; sys.stdin.read()")
    killed(dead)
    client = subprocess.Popen([sys.executable, program], stdin=subprocess.PIPE)
    try:
        owner()
        assert program.exists()
    finally:
        client.communicate()
    owner()
    # Only who sees every process of the host knows that none is at work.
    from mpswatch.proc import Processes

    assert left.exists() == (not Processes().sees_host_pids())


def test_links_files_and_folders_of_another_name_stay(owner, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "mpswatch-work-link").symlink_to(elsewhere)
    (tmp_path / "mpswatch-work-file").write_text("mine")
    (tmp_path / "mpswatch-older").mkdir()
    before = set(tmp_path.iterdir())
    _, mine = owner()
    assert set(tmp_path.iterdir()) == before | {mine}
