"""The schedule triggers, whatever the wall clock does."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from mpswatch.daemon.first_sweep import again_in, first_sweep_in
from mpswatch.daemon.schedule import Schedule, WallClock

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def test_polls_and_sweeps_are_triggered_at_their_intervals(in_loop, eventually):
    async def scenario():
        seen = []
        schedule = Schedule(poll=lambda: seen.append("poll"), sweep=lambda: seen.append("sweep"))
        schedule.every("poll", 0.05, first_in=0.0)
        await eventually(lambda: seen.count("poll") >= 3)
        assert "sweep" not in seen
        schedule.every("sweep", 3600, first_in=0.0)
        await eventually(lambda: "sweep" in seen)
        assert schedule.due_in("sweep") == pytest.approx(3600, abs=5)
        schedule.stop()
        count = len(seen)
        await asyncio.sleep(0.15)
        assert len(seen) == count

    in_loop(scenario)


def test_a_trigger_can_be_brought_forward_but_not_put_off(in_loop):
    async def scenario():
        schedule = Schedule(poll=lambda: None, sweep=lambda: None)
        schedule.every("sweep", 3600, first_in=1800)
        schedule.at_least_in("sweep", 2000)
        assert schedule.due_in("sweep") == pytest.approx(1800, abs=5)
        schedule.at_least_in("sweep", 60)
        assert schedule.due_in("sweep") == pytest.approx(60, abs=5)
        schedule.off("sweep")
        assert schedule.due_in("sweep") is None
        schedule.at_least_in("sweep", 1)
        assert schedule.due_in("sweep") is None
        schedule.stop()

    in_loop(scenario)


@pytest.mark.parametrize("step", [-3600, 3600])
def test_a_stepped_clock_neither_stops_the_polls_nor_hurries_the_sweeps(in_loop, eventually, monkeypatch, step):
    async def scenario():
        seen = []
        schedule, clock = Schedule(poll=lambda: seen.append("poll"), sweep=lambda: seen.append("sweep")), WallClock()
        schedule.every("poll", 0.05, first_in=0.05)
        schedule.every("sweep", 1800, first_in=1700)
        assert clock.stepped() == 0.0
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + step)
        assert clock.stepped() == pytest.approx(step, abs=1)
        assert clock.stepped() == 0.0, "said once"
        await eventually(lambda: seen.count("poll") >= 3)
        assert "sweep" not in seen
        assert schedule.due_in("sweep") == pytest.approx(1700, abs=3)
        schedule.stop()

    in_loop(scenario)


def test_a_loop_that_stood_still_triggers_once_and_then_in_step_again(in_loop, eventually):
    async def scenario():
        seen = []
        began = time.monotonic()
        schedule = Schedule(poll=lambda: seen.append(time.monotonic() - began))
        schedule.every("poll", 0.1, first_in=0.0)
        await eventually(lambda: seen)
        time.sleep(0.35)  # noqa: ASYNC251 -- the loop is to stand still
        await eventually(lambda: len(seen) >= 3)
        schedule.stop()
        assert seen[1] > 0.35
        assert seen[2] > 0.39, "what was missed is not made up for"

    in_loop(scenario)


def test_triggers_are_spread_and_do_not_drift(in_loop, eventually):
    async def scenario():
        seen = []
        began = time.monotonic()
        schedule = Schedule(copy=lambda: seen.append(time.monotonic() - began))
        schedule.every("copy", 0.1, first_in=0.0, jitter=0.05)
        await eventually(lambda: len(seen) == 6)
        schedule.stop()
        after = [at - 0.1 * number for number, at in enumerate(seen)]
        assert min(after) > -0.01
        assert sorted(after)[3] < 0.09
        assert max(after) - min(after) > 0.002

    in_loop(scenario)


def test_a_schedule_that_was_stopped_takes_nothing_on(in_loop):
    async def scenario():
        seen = []
        schedule = Schedule(poll=lambda: seen.append("poll"))
        schedule.stop()
        schedule.every("poll", 0.01, first_in=0.0)
        schedule.at_least_in("poll", 0.0)
        await asyncio.sleep(0.05)
        assert seen == []
        assert schedule.due_in("poll") is None

    in_loop(scenario)


def test_a_daemon_that_was_never_here_sweeps_at_once():
    assert first_sweep_in(interval=3600, newest_start=None, known=True, now=NOW) == 0


@pytest.mark.parametrize(("age", "wait"), [(0, 3600), (600, 3000), (3600, 0), (90000, 0), (-600, 3600)])
def test_a_crash_loop_does_not_sweep(age, wait):
    started = NOW - timedelta(seconds=age)
    assert first_sweep_in(interval=3600, newest_start=started, known=True, now=NOW) == wait


def test_where_nothing_is_known_a_whole_interval_is_waited():
    assert first_sweep_in(interval=3600, newest_start=None, known=False, now=NOW) == 3600


def test_attempts_after_refusals_come_at_doubling_distances_up_to_the_interval():
    assert [again_in(interval=600, refusals=number) for number in range(1, 7)] == [60, 120, 240, 480, 600, 600]
    assert again_in(interval=600, refusals=100000) == 600
    assert again_in(interval=5, refusals=1) == 5
