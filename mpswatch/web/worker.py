"""A thread of our own for what may block: the loop's executor would be waited for when the process leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Runs functions one after another in one daemon thread, which starts with the first of them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]]] = SimpleQueue()
        self._started = False

    async def run(self, function: Callable[[], T]) -> T:
        """Call `function` in the thread; its result, or its exception, comes back here."""
        if not self._started:
            self._started = True
            threading.Thread(target=self._serve, name=self._name, daemon=True).start()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.put((function, future))
        return await future

    def _serve(self) -> None:
        while True:
            function, future = self._queue.get()
            result: Any = None
            error: Exception | None = None
            try:
                result = function()
            except Exception as raised:  # noqa: BLE001  # whatever it is, it belongs to the caller
                error = raised
            try:
                future.get_loop().call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:
                continue  # that loop is gone


def _settle(future: asyncio.Future[Any], result: object, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
