"""Every way out, beside a server that takes a neighbour down when a client vanishes with work in flight.

The stack's word is what counts: the client's connection closed with nothing in flight.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time

import pytest

from mpswatch.client.faults import COMPUTING, PHASES
from mpswatch.process.launch import LauncherGone

LONG = {"iters": 100_000, "size": 64, "warm_up": 2, "cap": "50"}

NOT_YET_ATTACHED = ("fork", "context", "allocate", "attached")


def computing(launcher, order: int = 1, **changes) -> int:
    """A cell in the midst of its measurement; the child's pid."""
    launcher.cell(order, **{**LONG, **changes})
    pid = launcher.expect("forked")["pid"]
    launcher.expect("attached")
    launcher.say(go=True)
    time.sleep(random.uniform(0.05, 0.3))
    return pid


def drained(stack, number: int = 1) -> None:
    """The newest client left with nothing in flight, and it had been at work."""
    left = stack.left(number)[-1]
    assert left["in_flight"] == 0, "a neighbour would have died"
    assert left["pieces"] > 0


def test_the_daemon_hangs_up_and_hears_the_child_go(start, stack) -> None:
    launcher = start()
    computing(launcher)
    launcher.launched.hang_up()
    failed = launcher.expect("failed")
    assert (failed["reason"], failed["phase"]) == ("stopped", "measure")
    assert launcher.expect("gone")["exit"] == 1
    assert launcher.hear() is None
    assert launcher.ended() == 0
    drained(stack)


def test_the_daemon_vanishes_and_nobody_listens(start, stack) -> None:
    launcher = start()
    computing(launcher)
    launcher.launched.close()
    launcher.ended()
    drained(stack)


def test_bye_in_the_midst_of_it(start, stack) -> None:
    launcher = start()
    computing(launcher)
    launcher.say(bye=True)
    assert launcher.expect("failed")["reason"] == "stopped"
    launcher.expect("gone")
    drained(stack)
    launcher.through(order=2)


def test_the_deadline_ends_it_from_within(start, stack) -> None:
    launcher = start()
    began = time.monotonic()
    computing(launcher, deadline=1.5)
    failed = launcher.expect("failed")
    assert (failed["reason"], failed["phase"]) == ("deadline", "measure")
    assert 1.4 < time.monotonic() - began < 20
    launcher.expect("gone")
    drained(stack)


def test_nobody_says_go_and_the_deadline_ends_it(start, stack) -> None:
    launcher = start()
    launcher.cell(deadline=1.0)
    launcher.expect("forked")
    launcher.expect("attached")
    assert launcher.expect("failed")["reason"] == "deadline"
    launcher.expect("gone")
    assert stack.left(1)[0]["pieces"] == 0


def test_nobody_says_bye_and_the_deadline_ends_it(start) -> None:
    launcher = start()
    launcher.cell(deadline=2.0)
    launcher.expect("forked")
    launcher.expect("attached")
    launcher.say(go=True)
    launcher.expect("result")
    assert launcher.expect("gone")["exit"] == 0


@pytest.mark.parametrize(
    "name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGABRT", "SIGALRM", "SIGUSR1", "SIGPIPE", "SIGTSTP"]
)
def test_a_signal_to_client_launcher_and_group_changes_nothing(start, stack, name: str) -> None:
    launcher = start()
    pid = computing(launcher, iters=400)
    for target in (pid, launcher.pid):
        os.kill(target, signal.Signals[name])
    os.killpg(launcher.pid, signal.Signals[name])
    launcher.expect("result")
    launcher.say(bye=True)
    assert launcher.expect("gone")["exit"] == 0
    drained(stack)


@pytest.mark.parametrize("kind", ["exception", "memory", "out_of_memory", "exit", "interrupt"])
def test_what_is_raised_in_any_phase_drains_reports_and_leaves(start, stack, kind: str) -> None:
    launcher = start("--fail-in", "cell")
    expected = {"memory": "out_of_memory", "out_of_memory": "out_of_memory"}.get(kind, "client_error")
    at_work = 0
    for order, phase in enumerate(PHASES):
        launcher.cell(order, fail_in=f"{phase}:{kind}", iters=400, size=64, sustained={"seconds": 5.0})
        launcher.expect("forked")
        if phase not in NOT_YET_ATTACHED:
            launcher.expect("attached")
            launcher.say(go=True)
        failed = launcher.expect("failed")
        assert (failed["phase"], failed["reason"], failed["order"]) == (phase, expected, order)
        gone = launcher.expect("gone")
        assert (gone["exit"], gone["signal"]) == (1, None)
        at_work += phase in COMPUTING
    left = stack.left(len(PHASES) - 2)  # in `fork` and `context` it has not attached yet
    assert all(line["in_flight"] == 0 for line in left)
    assert sum(line["pieces"] > 0 for line in left) >= at_work
    launcher.through(order=99)


@pytest.mark.parametrize("phase", COMPUTING)
def test_the_striking_faults_do_strike_with_work_in_flight(start, stack, phase: str) -> None:
    """The check of the check: ending at these very points without draining is what takes a neighbour down."""
    launcher = start("--fail-in", f"{phase}:os_exit")
    launcher.cell(size=64, iters=400, sustained={"seconds": 5.0})
    launcher.expect("forked")
    launcher.expect("attached")
    launcher.say(go=True)
    assert launcher.expect("gone")["exit"] == 5
    assert stack.left(1)[0]["in_flight"] > 0


def test_a_killed_client_is_reported_with_its_signal(start, stack) -> None:
    launcher = start()
    os.kill(computing(launcher), signal.SIGKILL)
    assert launcher.expect("gone")["signal"] == signal.SIGKILL
    launcher.through(order=2)


def test_the_launchers_death_lets_the_client_drain(start, stack) -> None:
    launcher = start()
    computing(launcher)
    os.kill(launcher.pid, signal.SIGKILL)
    launcher.ended()
    drained(stack)


def test_a_client_let_in_late_looks_first_and_leaves(start, stack) -> None:
    launcher = start()
    stack.receive_clients("late")
    launcher.cell(deadline=0.4)
    launcher.expect("forked")
    failed = launcher.expect("failed")
    assert (failed["reason"], failed["phase"]) == ("deadline", "context")
    launcher.expect("gone")
    assert stack.left(1)[0]["pieces"] == 0


def test_one_that_hangs_in_the_driver_is_waited_for_and_keeps_the_lock(start, stack) -> None:
    launcher = start()
    stack.receive_clients("hang")
    launcher.cell(deadline=0.2)
    launcher.expect("forked")
    launcher.launched.hang_up()
    time.sleep(0.5)
    assert launcher.launched.exited() is None
    assert start(ready=False).expect("failed")["reason"] == "sweep_running"
    stack.receive_clients("normal")
    assert launcher.expect("failed")["reason"] == "stopped"
    launcher.expect("gone")
    assert launcher.ended() == 0


def test_a_reader_that_stops_reading_is_no_reason_to_wait(start, stack) -> None:
    """The pipe fills up (64 KiB) with the answers to nonsense; the next line that does not fit ends the sweep."""
    launcher = start()
    computing(launcher)
    with contextlib.suppress(LauncherGone):
        for _ in range(2000):
            launcher.launched.send(b'{"nonsense": "' + b"x" * 400 + b'"}\n')
    launcher.ended()
    drained(stack)


def test_the_server_dies_under_the_client(start, stack) -> None:
    launcher = start()
    computing(launcher)
    stack.end()
    failed = launcher.expect("failed")
    assert failed["reason"] == "client_error"
    assert launcher.expect("gone")["exit"] in (1, 70)  # 70: synchronising raised too


def test_a_line_that_is_nonsense_or_too_long_is_passed_on_as_it_is(start) -> None:
    launcher = start("--fail-in", "attached:nonsense")
    launcher.cell()
    launcher.expect("forked")
    with pytest.raises(ValueError, match="Expecting value"):
        launcher.expect("attached")
