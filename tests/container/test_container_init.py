"""The image's first process, as a real process with real children; pid 1 in a namespace of its own where it must be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "mpswatch"
INIT = [sys.executable, "-I", "-S", str(PACKAGE / "container_init.py")]
TRAMPOLINE = PACKAGE / "process" / "trampoline.py"
PYTHON = [sys.executable, "-I", "-S", "-c"]

DAEMON = """
import os, signal, sys, time
def told(number, frame):
    os.write(1, signal.Signals(number).name.encode() + b"\\n")
    if number == signal.SIGTERM:
        sys.exit(3)
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):
    signal.signal(number, told)
print("ready", os.getpid(), flush=True)
while True:
    time.sleep(0.05)
"""

# A launcher as the sweep starts it: through the trampoline, with its lifeline on standard input. `drain` is how
# long it needs after end-of-file.
LAUNCHER = "import sys, time; sys.stdin.read(); time.sleep({drain}); open({left!r}, 'w').write('drained')"

STARTS_A_LAUNCHER = """
import os, subprocess, sys, time
lifeline, launcher = sys.argv[1:3]
child = subprocess.Popen(
    [sys.executable, "-I", "-S", {trampoline!r}, "/", sys.executable, "-I", "-S", "-c", launcher],
    stdin=subprocess.PIPE,
)
while True:  # as the daemon does: go on only when the launcher runs
    status = open(f"/proc/{{child.pid}}/status").read()
    if int(status.split("SigIgn:\\t")[1].split()[0], 16) >> 14 & 1:
        break
    time.sleep(0.01)
print("ready", child.pid, flush=True)
{then}
"""


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    running: list[subprocess.Popen[str]] = []

    def run(arguments: list[str], prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*prefix, *INIT, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        running.append(process)
        return process

    yield run
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def launching(tmp_path: Path, drain: float, then: str) -> list[str]:
    script = STARTS_A_LAUNCHER.format(trampoline=str(TRAMPOLINE), then=then)
    launcher = LAUNCHER.format(drain=drain, left=str(tmp_path / "left"))
    return [*PYTHON, script, "lifeline", launcher]


def test_its_exit_code_is_the_daemons(start):
    process = start([*PYTHON, "raise SystemExit(6)"])
    assert process.wait(10) == 6


def test_a_daemon_that_a_signal_ended_gives_128_and_the_signal(start):
    process = start([*PYTHON, "import os, signal; os.kill(os.getpid(), signal.SIGABRT)"])
    assert process.wait(10) == 128 + signal.SIGABRT


def test_a_program_that_is_not_there_is_named(start):
    process = start(["/nowhere/mpswatch"])
    _, stderr = process.communicate(timeout=10)
    assert (process.returncode, stderr) == (
        127,
        "mpswatch-init: cannot start /nowhere/mpswatch: No such file or directory\n",
    )


def test_without_a_program_it_says_how_it_is_called(start):
    process = start([])
    _, stderr = process.communicate(timeout=10)
    assert (process.returncode, stderr) == (2, "mpswatch-init: usage: container_init.py PROGRAM [ARGUMENT ...]\n")


def test_what_it_is_told_it_passes_on_to_the_daemon(start):
    process = start([*PYTHON, DAEMON])
    assert process.stdout.readline().startswith("ready")
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGINT, signal.SIGTERM):
        process.send_signal(number)
        assert process.stdout.readline().strip() == number.name
    assert process.wait(10) == 3


def test_the_daemon_gets_default_signals_and_nothing_blocked(start):
    process = start(["cat", "/proc/self/status"])
    stdout, _ = process.communicate(timeout=10)
    fields = dict(line.split(":\t", 1) for line in stdout.splitlines())
    assert int(fields["SigBlk"], 16) == 0
    standard = 0x7FFF_FFFF  # signals 1 to 31: the C library keeps 32 and 33 for itself
    assert int(fields["SigIgn"], 16) & standard == 0


def test_orphans_are_reaped_while_the_daemon_runs(start, tmp_path):
    script = (
        "import os, sys, time\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    orphan = os.fork()\n"
        "    if orphan == 0:\n"
        "        time.sleep(0.5); os._exit(0)\n"
        "    print(orphan, end=' ', flush=True); os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(flush=True); time.sleep(30)\n"
    )
    process = start([*PYTHON, script])
    orphan = Path("/proc") / process.stdout.readline().strip()
    status = (orphan / "status").read_text()
    assert f"PPid:\t{process.pid}" in status, "the orphan's parent is the init"
    until = time.monotonic() + 5
    while orphan.exists():
        assert time.monotonic() < until, "the orphan is still there, a zombie"
        time.sleep(0.02)
    process.terminate()
    assert process.wait(10) == 128 + signal.SIGTERM


def test_it_outlives_the_daemon_until_the_measuring_client_has_left(start, tmp_path):
    process = start(launching(tmp_path, drain=1.0, then="sys.exit(0)"))
    assert process.wait(15) == 0
    assert (tmp_path / "left").read_text() == "drained"
    assert "waiting for measuring clients to drain" in process.stderr.read()


def test_a_daemon_that_is_killed_does_not_take_the_client_with_it(start, tmp_path):
    process = start(launching(tmp_path, drain=1.0, then="os.kill(os.getpid(), 9)"))
    assert process.wait(15) == 128 + signal.SIGKILL
    assert (tmp_path / "left").read_text() == "drained"


@pytest.mark.part("unshare")
@pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace needs root")
def test_as_pid_1_its_end_would_kill_the_client_so_it_leaves_last(start, tmp_path):
    namespace = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    process = start(launching(tmp_path, drain=1.0, then="os.kill(os.getpid(), 9)"), prefix=namespace)
    assert process.wait(15) == 128 + signal.SIGKILL
    assert (tmp_path / "left").read_text() == "drained"


def test_told_to_stop_again_while_it_waits_it_still_waits(start, tmp_path):
    process = start(launching(tmp_path, drain=1.0, then="sys.exit(0)"))
    assert "waiting" in process.stderr.readline()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        process.send_signal(number)
    assert process.wait(15) == 0
    assert (tmp_path / "left").read_text() == "drained"


def test_another_process_that_the_daemon_left_behind_does_not_hold_it(start):
    script = "import subprocess; subprocess.Popen(['sleep', '5'], stdin=-3, stdout=-3, stderr=-3)"
    began = time.monotonic()
    process = start([*PYTHON, script])
    assert process.wait(10) == 0
    assert time.monotonic() - began < 4


def test_ctrl_c_in_a_terminal_reaches_the_daemon_once():
    leader, terminal = os.openpty()
    process = subprocess.Popen(
        [*INIT, *PYTHON, DAEMON],
        stdin=terminal,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # a session's first terminal is its controlling one
        preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),  # noqa: PLW1509 - one thread here
    )
    os.close(terminal)
    assert process.stdout.readline().startswith("ready")
    os.write(leader, b"\x03")
    assert process.stdout.readline() == "SIGINT\n"
    process.terminate()
    assert process.stdout.read() == "SIGTERM\n", "one interrupt, then the stop"
    assert process.wait(10) == 3
    process.stdout.close()
    os.close(leader)
