"""In a real terminal: Ctrl-C reaches whatever is in the foreground, and must not reach the measuring client."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import sys
import time
from pathlib import Path

import pytest

from mpswatch.daemon.exit import Exit

PATIENCE = 40.0


class Terminal:
    """A command as the foreground of a terminal of its own."""

    def __init__(self, argv):
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as a terminal starts it, whatever runs these tests (nohup)
            os.execv(argv[0], argv)  # noqa: S606 - a program, as a terminal starts it
        self.shown = ""

    def read_until(self, *texts):
        end = time.monotonic() + PATIENCE
        while not any(text in self.shown for text in texts):
            assert time.monotonic() < end, self.shown
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self.shown += os.read(self.master, 65536).decode()
                except OSError:
                    break
        assert any(text in self.shown for text in texts), self.shown

    def type(self, keys):
        os.write(self.master, keys)

    def hang_up(self):
        os.close(self.master)
        self.master = -1

    def exit_code(self):
        end = time.monotonic() + PATIENCE
        while True:
            if self.master >= 0 and select.select([self.master], [], [], 0.05)[0]:
                with contextlib.suppress(OSError):
                    self.shown += os.read(self.master, 65536).decode()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            assert time.monotonic() < end, self.shown
            time.sleep(0.02)


@pytest.fixture
def terminal():
    """Start a command in a terminal."""
    opened = []

    def start(*argv):
        opened.append(Terminal([sys.executable, *argv]))
        return opened[-1]

    yield start
    for running in opened:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(running.pid, signal.SIGKILL)
            os.waitpid(running.pid, 0)
        if running.master >= 0:
            os.close(running.master)


SLOW = {"iters": 20000, "caps": [100, 50, 25]}


def test_ctrl_c_lets_the_client_drain_and_writes_what_was_measured(terminal, configuration, stack, short_path):
    file = configuration(sweep=SLOW)
    sweep = terminal("-m", "mpswatch", "sweep", "--config.file", str(file))
    sweep.read_until("measures")
    sweep.type(b"\x03")
    sweep.read_until("letting the client drain")
    assert sweep.exit_code() == Exit.INTERRUPTED
    (path,) = (short_path / "archive" / "runs").glob("*.json")
    run = json.loads(path.read_text())
    assert not run["complete_sweep"]
    assert "stopped" in run["partial_run_note"]
    assert f"written: {path}" in sweep.shown.replace("\r\n", "")
    stack.wait_for_clients([])


def test_a_second_ctrl_c_leaves_at_once_and_the_client_drains_by_itself(terminal, configuration, stack):
    file = configuration(sweep=SLOW, mps={"deadline": "800ms"})
    sweep = terminal("-m", "mpswatch", "sweep", "--config.file", str(file))
    sweep.read_until("measures")
    stack.tell("hang")  # its last look now waits for the control daemon: time for a second Ctrl-C
    sweep.type(b"\x03")
    sweep.read_until("letting the client drain")
    sweep.type(b"\x03")
    assert sweep.exit_code() == Exit.LEFT_AT_ONCE
    stack.tell("resume")
    stack.wait_for_clients([])


def test_a_terminal_that_is_closed_ends_the_sweep_in_order(terminal, configuration, stack, short_path):
    file = configuration(sweep=SLOW)
    sweep = terminal("-m", "mpswatch", "sweep", "--config.file", str(file))
    sweep.read_until("measures")
    sweep.hang_up()
    assert sweep.exit_code() == Exit.INTERRUPTED
    assert len(list((short_path / "archive" / "runs").glob("*.json"))) == 1
    stack.wait_for_clients([])


def test_a_daemon_in_a_terminal_stops_when_the_terminal_is_closed(terminal, configuration, stack, short_path):
    file = configuration(sweep={"enabled": False}, log={"format": "text"})
    daemon = terminal(str(Path(__file__).parent / "rehearse.py"), str(file))
    daemon.read_until("serving")
    daemon.hang_up()
    assert daemon.exit_code() == 0
    kinds = [json.loads(line)["kind"] for line in (short_path / "archive" / "journal.jsonl").read_text().splitlines()]
    assert kinds[-1] == "stopped"
    assert "configuration_reloaded" not in kinds


def test_a_name_cannot_move_the_cursor_of_a_terminal(terminal, configuration, stack):
    stack.add_foreign("evil", 100, process_name="\x1b[2J\x1b]0;owned\x07[bold red]evil[/]")
    file = configuration()
    poll = terminal("-m", "mpswatch", "poll", "--config.file", str(file))
    poll.exit_code()
    assert "\x1b[2J" not in poll.shown
    assert "\x1b]0" not in poll.shown
    assert "evil" in poll.shown
