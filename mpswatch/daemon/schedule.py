"""When to poll, to sweep, to copy. The scheduler only triggers: what it starts is never its to cancel."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from apscheduler.job import Job
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.triggers.interval import IntervalTrigger

# The scheduler computes with the wall clock: after a step of more than this its times mean nothing any more.
_STEP_SECONDS = 2.0


class Schedule:
    """Interval triggers, in UTC. What is triggered (`poll`, `sweep`, `copy`) is called in the loop: return at once."""

    def __init__(self, **calls: Callable[[], None]) -> None:
        self._scheduler = AsyncIOScheduler(timezone=UTC)
        self._calls = calls
        self._offset = time.time() - time.monotonic()
        self._intervals: dict[str, float] = {}
        self._due: dict[str, float] = {}  # on the monotonic clock, for when the other one is stepped
        self._early: dict[str, float] = {}  # seconds that a trigger may come before that

    def start(self) -> None:
        self._scheduler.start()

    def stop(self) -> None:
        """Start no more jobs. What was started goes on: it runs in threads of its own."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    def every(self, what: str, interval: float, *, first_in: float, jitter: float = 0.0) -> None:
        """Trigger `what` in `first_in` seconds and each `interval` from then on, up to `jitter` seconds later."""
        self._intervals[what] = interval
        self._due[what] = time.monotonic() + first_in
        self._early[what] = jitter + _STEP_SECONDS
        first = datetime.now(UTC) + timedelta(seconds=first_in)
        self._scheduler.add_job(
            self._trigger,
            IntervalTrigger(seconds=interval, timezone=UTC, jitter=jitter or None),
            args=[what],
            id=what,
            replace_existing=True,
            next_run_time=first,
            coalesce=True,
            max_instances=1,
            misfire_grace_time=max(1, int(interval)),  # later than a whole interval: the next one comes anyway
        )

    def at_least_in(self, what: str, seconds: float) -> None:
        """Bring the next trigger of `what` forward to `seconds` from now, if it is later than that."""
        job = self._job(what)
        due = datetime.now(UTC) + timedelta(seconds=seconds)
        if job is not None and (job.next_run_time is None or job.next_run_time > due):
            self._due[what] = time.monotonic() + seconds
            job.modify(next_run_time=due)

    def off(self, what: str) -> None:
        if self._job(what) is not None:
            self._scheduler.remove_job(what)

    def due_in(self, what: str) -> float | None:
        """Seconds until `what` is triggered next; None while it is not scheduled."""
        job = self._job(what)
        if job is None or job.next_run_time is None:
            return None
        left: timedelta = job.next_run_time - datetime.now(UTC)
        return max(0.0, left.total_seconds())

    def follow_the_clock(self) -> float:
        """Set every trigger anew when the wall clock was stepped; returns the step in seconds (0: none).

        To be called about once a second. Without it a clock set back by an hour would stop the polls for an hour.
        """
        offset = time.time() - time.monotonic()
        step, self._offset = offset - self._offset, offset
        if abs(step) < _STEP_SECONDS:
            return 0.0
        for what, due in self._due.items():
            job = self._job(what)
            if job is not None:
                left = max(0.0, due - time.monotonic())
                job.modify(next_run_time=datetime.now(UTC) + timedelta(seconds=left))
        return step

    def _job(self, what: str) -> Job | None:
        return self._scheduler.get_job(what)

    async def _trigger(self, what: str) -> None:
        # async, so that it runs in the loop itself: APScheduler hands plain functions to a pool of threads
        early, job = self._due[what] - time.monotonic(), self._job(what)
        if early > self._early[what] and job is not None:
            # The wall clock was set forward, and the scheduler woke before `follow_the_clock` was called.
            job.modify(next_run_time=datetime.now(UTC) + timedelta(seconds=early))
            return
        self._due[what] = time.monotonic() + self._intervals[what]
        self._calls[what]()
