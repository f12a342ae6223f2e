"""A loop for the parts of the daemon that live in one, and pieces that several tests use."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from mpswatch.documents import Event


@pytest.fixture
def in_loop() -> Callable[[Callable[[], Coroutine[Any, Any, None]]], None]:
    """Run an async function to its end, within ten seconds."""

    def run(function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        asyncio.run(asyncio.wait_for(function(), 10))

    return run


@pytest.fixture
def eventually() -> Callable[..., Coroutine[Any, Any, None]]:
    """Wait in the loop until something is true."""

    async def wait(what: Callable[[], Any]) -> None:
        end = time.monotonic() + 8
        while not what():
            assert time.monotonic() < end, "it did not come about"
            await asyncio.sleep(0.01)

    return wait


@pytest.fixture
def event() -> Callable[..., Event]:
    """An event of some kind."""

    def make(kind: Any = "started", **rest: Any) -> Event:
        return Event(kind=kind, at=datetime.now(UTC), host="gpu-07", message="so it was", **rest)

    return make
