"""A daemon thread of our own for what may block: one job at a time, its outcome handed back to the loop.

Not an executor: the interpreter waits for an executor's threads when it leaves, and a hung call must not hold
the exit.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Worker(Generic[T]):
    """Runs what it is offered, one at a time; what is offered meanwhile is turned away.

    Its thread starts with the first job: most daemons never copy, reload or measure.
    """

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.name = name
        self._loop = loop
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._started: float | None = None
        self._thread: threading.Thread | None = None

    @property
    def busy_seconds(self) -> float | None:
        """How long the job in hand has been running; None while there is none."""
        started = self._started
        return None if started is None else time.monotonic() - started

    def offer(self, job: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]) -> bool:
        """Run `job` in the thread, then `done` or `failed` in the loop; False, and nothing, while one is running.

        To be called in the loop's own thread.
        """
        if self._started is not None:
            return False
        self._started = time.monotonic()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
            self._thread.start()
        self._jobs.put(lambda: self._do(job, done, failed))
        return True

    def _run(self) -> None:
        while True:
            self._jobs.get()()

    def _do(self, job: Callable[[], T], done: Callable[[T], None], failed: Callable[[Exception], None]) -> None:
        try:
            result = job()
        except Exception as error:  # noqa: BLE001 - whatever went wrong is the loop's to report, and the thread lives on
            self._hand_back(failed, error)
        else:
            self._hand_back(done, result)

    def _hand_back(self, how: Callable[[T], None] | Callable[[Exception], None], outcome: T | Exception) -> None:
        def finish() -> None:
            self._started = None
            how(outcome)  # type: ignore[arg-type] # `done` goes with a result, `failed` with an exception: see _do

        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody waits for this any more
            self._loop.call_soon_threadsafe(finish)
