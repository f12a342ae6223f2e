"""Two children at once: only where both were meant, each spoken to by itself, and neither ends with work in flight."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

LOAD = {
    "passes": 0,
    "samples": 0,
    "size": 64,
    "sustained": {"seconds": 0.1, "block": 0.01, "settle_least": 0, "settle_most": 0, "open_ended": True},
}
WINDOW = {"passes": 0, "samples": 0, "size": 64, "sustained": {"seconds": 0.2, "block": 0.01, "settle_most": 0.1}}


def hear(launcher: Any, *words: str) -> dict[str, Any]:
    """The next lines, in whatever order; by word."""
    heard: dict[str, Any] = {}
    while set(heard) != set(words):
        word, body = launcher.hear()
        assert word in words, (word, body)
        heard[word] = body
    return heard


def at_work(start: Any) -> tuple[Any, int, int]:
    """An aggressor (order 2) that works under load and a victim (order 1) that was told to go; their pids."""
    launcher = start()
    launcher.cell(2, **LOAD)
    aggressor = hear(launcher, "forked", "attached")["forked"]["pid"]
    launcher.cell(1, beside=2, **WINDOW)
    victim = hear(launcher, "forked", "attached")["forked"]["pid"]
    launcher.say(go=2)
    assert launcher.expect("running")["order"] == 2
    launcher.say(go=1)
    return launcher, victim, aggressor


def test_a_victim_is_measured_while_the_aggressor_works(start, stack) -> None:
    launcher, _, _ = at_work(start)
    victim = launcher.expect("result")
    assert victim["order"] == 1
    launcher.say(enough=2)
    aggressor = launcher.expect("result")
    assert aggressor["order"] == 2
    assert aggressor["phases"]["sustained"][0] <= victim["phases"]["sustained"][0]
    assert victim["phases"]["sustained"][1] <= aggressor["phases"]["sustained"][1]
    launcher.say(bye=1)
    assert launcher.expect("gone")["order"] == 1
    launcher.say(bye=2)
    assert launcher.expect("gone") == {**launcher_gone(2), "pid": aggressor_pid(stack)}
    assert [line["in_flight"] for line in stack.left(2)] == [0, 0]
    launcher.through(order=3)


def launcher_gone(order: int) -> dict[str, Any]:
    return {"order": order, "cap": "50", "status": 0, "exit": 0, "signal": None}


def aggressor_pid(stack: Any) -> int:
    return int(stack.left(2)[-1]["pid"])


def test_a_second_cell_that_does_not_name_the_first_is_refused(start) -> None:
    launcher = start()
    launcher.cell(2, **LOAD)
    hear(launcher, "forked", "attached")
    for beside in (None, 1, 3):
        launcher.cell(1, beside=beside, **WINDOW)
        assert launcher.expect("failed")["detail"] == "a cell is under way"
    launcher.cell(2, beside=2, **WINDOW)
    assert launcher.expect("failed")["detail"] == "a cell is under way"


def test_never_three_at_once(start) -> None:
    launcher, _, _ = at_work(start)
    launcher.cell(3, beside=2, **WINDOW)
    assert hear(launcher, "failed", "result")["failed"]["detail"] == "a cell is under way"


def ways() -> dict[str, Any]:
    return {
        "the daemon hangs up": lambda launcher: launcher.launched.hang_up(),
        "the daemon vanishes": lambda launcher: launcher.launched.close(),
        "bye to both": lambda launcher: launcher.say(bye=True),
        "the launcher is killed": lambda launcher: os.kill(launcher.pid, signal.SIGKILL),
    }


@pytest.mark.parametrize("way", ways())
def test_however_it_ends_both_drain_first(start, stack, way: str) -> None:
    launcher, _, _ = at_work(start)
    time.sleep(0.05)
    ways()[way](launcher)
    left = stack.left(2)
    assert [line["in_flight"] for line in left] == [0, 0], "a neighbour would have died"
    assert all(line["pieces"] > 0 for line in left)


def test_an_aggressor_whom_nobody_tells_that_it_is_enough_leaves_at_its_deadline(start, stack) -> None:
    launcher = start()
    launcher.cell(2, **{**LOAD, "deadline": 0.6})
    hear(launcher, "forked", "attached")
    launcher.say(go=2)
    launcher.expect("running")
    assert launcher.expect("failed")["reason"] == "deadline"
    assert launcher.expect("gone")["exit"] == 1
    assert stack.left(1)[0]["in_flight"] == 0


def test_one_killed_says_nothing_of_the_other(start, stack) -> None:
    launcher, victim, _ = at_work(start)
    os.kill(victim, signal.SIGKILL)
    assert launcher.expect("gone")["signal"] == signal.SIGKILL
    launcher.say(enough=2)
    assert launcher.expect("result")["order"] == 2
    launcher.say(bye=2)
    assert launcher.expect("gone")["exit"] == 0
    assert stack.left(2)[-1]["in_flight"] == 0
