"""When to poll, to sweep, to copy. The schedule only triggers: what it starts is never its to cancel."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

_STEP_SECONDS = 2.0


@dataclass(slots=True)
class _Timer:
    interval: float
    jitter: float
    slot: float  # on the loop's clock, without the jitter
    handle: asyncio.TimerHandle


class Schedule:
    """Intervals on the loop's clock, which nobody can set. What is triggered is called in the loop: return at once."""

    def __init__(self, **calls: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls = calls
        self._timers: dict[str, _Timer] = {}
        self._stopped = False

    def stop(self) -> None:
        """Trigger nothing any more. What was started goes on: it runs in threads of its own."""
        self._stopped = True
        for what in list(self._timers):
            self.off(what)

    def every(self, what: str, interval: float, *, first_in: float, jitter: float = 0.0) -> None:
        """Trigger `what` in `first_in` seconds and each `interval` from then on, up to `jitter` seconds later."""
        if self._stopped:
            return
        self.off(what)
        slot = self._loop.time() + first_in
        self._timers[what] = _Timer(interval, jitter, slot, self._loop.call_at(slot, self._trigger, what))

    def at_least_in(self, what: str, seconds: float) -> None:
        """Bring the next trigger of `what` forward to `seconds` from now, if it is later than that."""
        timer, at = self._timers.get(what), self._loop.time() + seconds
        if timer is not None and timer.handle.when() > at:
            timer.slot = at
            self._set(what, timer, at)

    def off(self, what: str) -> None:
        timer = self._timers.pop(what, None)
        if timer is not None:
            timer.handle.cancel()

    def due_in(self, what: str) -> float | None:
        """Seconds until `what` is triggered next; None while it is not scheduled."""
        timer = self._timers.get(what)
        return None if timer is None else max(0.0, timer.handle.when() - self._loop.time())

    def _set(self, what: str, timer: _Timer, at: float) -> None:
        timer.handle.cancel()
        timer.handle = self._loop.call_at(at, self._trigger, what)

    def _trigger(self, what: str) -> None:
        timer = self._timers[what]
        missed = (self._loop.time() - timer.slot) // timer.interval  # the loop stood still: they are not made up for
        timer.slot += (max(0.0, missed) + 1) * timer.interval
        self._set(what, timer, timer.slot + random.uniform(0, timer.jitter))  # noqa: S311 -- no secret
        self._calls[what]()


class WallClock:
    """Notices when the wall clock is set: what documents say of time before and after does not fit together."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def stepped(self) -> float:
        """By how many seconds it was set since the last call (0: not, or by less than two)."""
        offset = time.time() - time.monotonic()
        step, self._offset = offset - self._offset, offset
        return step if abs(step) >= _STEP_SECONDS else 0.0
