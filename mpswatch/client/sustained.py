"""Work under load for a while: first until its times settle, then in samples. Pure: it is told of pieces, and counts.

A sample is a block of pieces, at least so many seconds long: the power controller moves the clock within a few
hundredths of a second, and a single piece would tell of that alone. Times are seconds.
"""

from __future__ import annotations

import statistics
from typing import NamedTuple

WINDOW = 3
"""How many blocks make a window: two windows in a row are compared."""

SAMPLES_MOST = 100
"""Samples kept: they travel in one line of 4096 bytes."""


class Request(NamedTuple):
    """What is asked for.

    Load for at least `settle_least` and at most `settle_most`, in between until the medians of two windows differ by
    no more than `tolerance` (a ratio); then samples for `seconds`, or until told that it is enough (`open_ended`).
    """

    seconds: float
    block: float = 0.025
    settle_least: float = 0.4
    settle_most: float = 0.8
    tolerance: float = 0.005
    open_ended: bool = False


class Sustained:
    """Told of each piece by `heed`. `samples` are seconds a kernel, one a block."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.settled: bool | None = None  # None: still settling
        self.settle_seconds = 0.0
        self.seconds = 0.0
        self.iterations = 0
        self.samples: list[float] = []
        self.enough = False
        self._blocks: list[float] = []
        self._count = 0
        self._block = 0.0

    def heed(self, count: int, seconds: float) -> bool:
        """Take note of a piece; False once there is enough."""
        self._count += count
        self._block += seconds
        if self._block >= self.request.block:
            block, length, kernels = self._block / self._count, self._block, self._count
            self._block, self._count = 0.0, 0
            if self.settled is None:
                self._settle(block, length)
            else:
                self._sample(block, length, kernels)
        return not self.enough

    def _settle(self, block: float, length: float) -> None:
        self.settle_seconds += length
        self._blocks.append(block)
        if self.settle_seconds < self.request.settle_least:
            return
        if is_settled(self._blocks, self.request.tolerance):
            self.settled = True
        elif self.settle_seconds >= self.request.settle_most:
            self.settled = False

    def _sample(self, block: float, length: float, kernels: int) -> None:
        self.seconds += length
        self.iterations += kernels
        self.samples.append(block)
        if len(self.samples) > SAMPLES_MOST:
            del self.samples[0]
        if self.seconds >= self.request.seconds and not self.request.open_ended:
            self.enough = True


def is_settled(blocks: list[float], tolerance: float) -> bool:
    """Whether the medians of the last two windows differ by no more than `tolerance` (a ratio)."""
    if len(blocks) < 2 * WINDOW:
        return False
    last, before = statistics.median(blocks[-WINDOW:]), statistics.median(blocks[-2 * WINDOW : -WINDOW])
    return abs(last - before) <= tolerance * before
