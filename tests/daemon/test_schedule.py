"""The schedule triggers, whatever the wall clock does."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from mpswatch.daemon.events import Target
from mpswatch.daemon.first_sweep import again_in, due_now, first_sweep_in
from mpswatch.daemon.schedule import Schedule

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def test_polls_and_sweeps_are_triggered_at_their_intervals(in_loop, eventually):
    async def scenario():
        seen = []
        schedule = Schedule(poll=lambda: seen.append("poll"), sweep=lambda: seen.append("sweep"))
        schedule.start()
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
        schedule.start()
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
def test_a_stepped_clock_neither_stops_the_polls_nor_hurries_the_sweeps(in_loop, monkeypatch, step):
    async def scenario():
        schedule = Schedule(poll=lambda: None, sweep=lambda: None)
        schedule.start()
        schedule.every("poll", 15, first_in=10)
        schedule.every("sweep", 7200, first_in=7000)
        assert schedule.follow_the_clock() == 0.0
        # what a step does: the scheduler's times are wall-clock times, and the wall clock is another one now
        for job in ("poll", "sweep"):
            found = schedule._scheduler.get_job(job)
            found.modify(next_run_time=found.next_run_time - timedelta(seconds=step))
        schedule._offset -= step
        assert schedule.follow_the_clock() == pytest.approx(step, abs=1)
        assert schedule.due_in("poll") == pytest.approx(10, abs=3)
        assert schedule.due_in("sweep") == pytest.approx(7000, abs=3)
        schedule.stop()

    in_loop(scenario)


def test_a_trigger_that_only_the_stepped_clock_makes_due_is_put_back_to_its_time(in_loop):
    async def scenario():
        seen = []
        schedule = Schedule(sweep=lambda: seen.append("sweep"))
        schedule.start()
        schedule.every("sweep", 7200, first_in=7000)
        # the clock was set forward, and the scheduler looks before anybody has followed it
        schedule._scheduler.get_job("sweep").modify(next_run_time=datetime.now(UTC))
        await asyncio.sleep(0.1)
        assert seen == []
        assert schedule.due_in("sweep") == pytest.approx(7000, abs=3)
        schedule.stop()

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


A, B = Target("a", "GPU-1"), Target("b", "GPU-1")


@pytest.mark.parametrize(
    ("ages", "due", "next_in"),
    [
        ({}, (A, B), None),
        ({A: 60}, (B,), 3540),  # B was refused, or came later: A is not disturbed for it, and not put off either
        ({A: 60, B: 600}, (), 3000),
        ({A: 3599, B: 3600}, (A, B), None),
        ({A: 3541}, (A, B), None),  # as early as a trigger may come
        ({A: 3537}, (B,), 63),
    ],
)
def test_a_target_is_due_once_an_interval_whatever_happens_to_the_others(ages, due, next_in):
    assert due_now((A, B), ages, interval=3600, jitter=58) == (due, next_in)


def test_a_short_interval_with_much_jitter_still_has_something_due():
    assert due_now((A,), {A: 0.5}, interval=1, jitter=0.9) == ((A,), None)
