"""The launcher is started so that nothing but its own end ends it, and so that it holds nothing of ours."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpswatch.process import launch as launch_module
from mpswatch.process.launch import Launched, LauncherGone, launch
from mpswatch.process.trampoline import EXEC_FAILED, NOT_IGNORED

SELF_PORTRAIT = """
import json, os, sys
status = dict(line.split(':', 1) for line in open('/proc/self/status'))
print(json.dumps({
    'ignored': int(status['SigIgn'], 16), 'session': os.getsid(0), 'pid': os.getpid(), 'cwd': os.getcwd(),
    'descriptors': sorted(int(fd) for fd in os.listdir('/proc/self/fd'))[:-1], 'environment': dict(os.environ),
}), flush=True)
for line in sys.stdin:
    print(line.strip().upper(), flush=True)
"""


def line(launched: Launched, seconds: float = 10) -> bytes:
    got, until = b"", time.monotonic() + seconds
    while not got.endswith(b"\n"):
        select.select([launched.receive_fd], [], [], max(0, until - time.monotonic()))
        chunk = os.read(launched.receive_fd, 4096)
        if not chunk:
            return got
        got += chunk
    return got


def ended(launched: Launched, seconds: float = 10) -> int:
    until = time.monotonic() + seconds
    while (code := launched.exited()) is None:
        assert time.monotonic() < until, "it lives on"
        time.sleep(0.01)
    return code


@pytest.fixture
def log(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    yield fd
    os.close(fd)


@pytest.fixture
def portrait(log: int) -> Iterator[Launched]:
    launched = launch([sys.executable, "-I", "-c", SELF_PORTRAIT], env={"LC_CTYPE": "C.UTF-8"}, log_fd=log)
    yield launched
    launched.close()
    assert ended(launched) == 0


def test_every_signal_that_can_be_ignored_is_ignored_before_the_program_starts(portrait: Launched) -> None:
    ignored = json.loads(line(portrait))["ignored"]
    for number in signal.valid_signals():
        assert bool(ignored >> (number - 1) & 1) == (number not in NOT_IGNORED), signal.Signals(number)


def test_signals_do_not_end_it(portrait: Launched) -> None:
    line(portrait)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT, signal.SIGUSR1):
        os.kill(portrait.pid, number)
        os.killpg(portrait.pid, number)
    portrait.send(b"still here\n")
    assert line(portrait) == b"STILL HERE\n"


def test_it_has_its_own_session_and_only_its_own_descriptors_and_environment(portrait: Launched) -> None:
    seen = json.loads(line(portrait))
    assert seen["session"] == seen["pid"] == portrait.pid
    assert seen["descriptors"] == [0, 1, 2]
    assert seen["cwd"] == "/"
    assert seen["environment"] == {"LC_CTYPE": "C.UTF-8"}


def test_an_inheritable_descriptor_of_ours_is_not_passed_on(log: int) -> None:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    launched = launch([sys.executable, "-I", "-c", SELF_PORTRAIT], env={}, log_fd=log)
    os.close(write)
    line(launched)
    assert os.read(read, 1) == b"", "somebody else still holds the write end"
    os.close(read)
    launched.close()
    ended(launched)


def test_hanging_up_is_end_of_file_and_what_it_says_last_is_still_heard(log: int) -> None:
    code = "import sys; sys.stdin.read(); print('last words', flush=True)"
    launched = launch([sys.executable, "-I", "-c", code], env={}, log_fd=log)
    launched.hang_up()
    assert line(launched) == b"last words\n"
    assert ended(launched) == 0
    with pytest.raises(LauncherGone):
        launched.send(b"more\n")
    launched.close()


def test_a_launcher_that_is_gone_or_does_not_read_is_reported(log: int, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = launch(["true"], env={"PATH": os.environ["PATH"]}, log_fd=log)
    ended(gone)
    with pytest.raises(LauncherGone):
        gone.send(b"x\n")
    gone.close()
    monkeypatch.setattr(launch_module, "SEND_DEADLINE", 0.1)
    deaf = launch([sys.executable, "-I", "-S", "-c", "import time; time.sleep(2)"], env={}, log_fd=log)
    for _ in range(16):  # what a pipe holds: 64 KiB
        deaf.send(b"x" * 4095 + b"\n")
    with pytest.raises(LauncherGone, match="does not read"):
        deaf.send(b"x" * 4095 + b"\n")
    deaf.close()
    ended(deaf)


def test_a_program_that_is_not_there_says_so_in_the_log(log: int, tmp_path: Path) -> None:
    launched = launch(["/no/such/python"], env={}, log_fd=log)
    assert ended(launched) == EXEC_FAILED
    assert "/no/such/python: No such file or directory" in (tmp_path / "log").read_text()
    launched.close()


def test_dropping_it_closes_the_lifeline_and_signals_nobody(log: int, tmp_path: Path) -> None:
    code = "import sys; sys.stdin.read(); open(sys.argv[1], 'w').write('drained')"
    note = tmp_path / "note"
    launched = launch([sys.executable, "-I", "-c", code, str(note)], env={}, log_fd=log)
    pid = launched.pid
    del launched
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert note.read_text() == "drained"


def test_nothing_is_left_open_when_it_cannot_be_started(log: int, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(OSError, match="No such file"):
        launch(["true"], env={}, log_fd=log)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
