"""Bounded work: what is queued on the device, how much of it at once, and who looks at the lifeline when.

Nothing here knows torch or numpy; a `Device` is all it sees. Each function returns, or raises, with nothing in
flight: it drains before an exception passes through. Times are seconds.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

PIECE_SECONDS = 0.004
"""A piece is one kernel or about this long, whichever is longer."""

TWO_PIECES_SECONDS = 0.020
"""A second piece is queued only while the two together are predicted to fit into this, with what they lately waited
for their turn; a piece is made shorter where its wait alone would take it beyond."""

RECENT = 4
"""How many pieces back the slowest counts: beside others a piece predicted as 4 ms can take five times as long."""

KERNEL_SECONDS_MOST = 0.100
"""A kernel that is predicted to take longer is not run at all."""

TRIES = 3
"""How often each size is run to predict a kernel's time."""

HOST_BOUND_RATIO = 0.005
"""Above this share of gaps between pieces the figure tells about the host as well as about the GPU."""

SLOTS = 4
"""Event pairs a device keeps: one for the first piece, whose start is needed to the end, and three that rotate
(two in flight and the one before them, whose end is needed for the gap)."""


class KernelTooLong(Exception):  # noqa: N818 -- a verdict about the cell, not an error
    """One kernel of the size asked for would hold the GPU longer than `KERNEL_SECONDS_MOST` under this cap."""


class Device:
    """What runs the work. A slot holds one piece; it is used again only after its piece was waited for."""

    small = 512
    """The smallest size worth timing on it."""

    exponent = 3
    """How a kernel's time grows with its size: 3 for a square matmul."""

    piece_most = 1 << 30
    """How many kernels a piece may have, however short they are: queueing them takes the host's time."""

    def enqueue(self, slot: int, count: int, size: int) -> None:
        """Queue `count` kernels of `size` between this slot's start and end events; do not wait."""
        raise NotImplementedError

    def wait(self, slot: int) -> None:
        """Return once this slot's piece has ended. Never waits for the whole device."""
        raise NotImplementedError

    def between(self, first: int, last: int) -> float:
        """Seconds from the start event of slot `first` to the end event of slot `last`; both have ended."""
        raise NotImplementedError

    def gap(self, before: int, after: int) -> float:
        """Seconds from the end event of slot `before` to the start event of slot `after`; both have ended."""
        raise NotImplementedError

    def fill(self, seed: int) -> Iterable[None]:
        """Fill the input in short steps; yields with one step queued. The caller drains before it goes on."""
        raise NotImplementedError

    def drain(self) -> None:
        """Return once nothing is in flight any more. Raises where the device itself is broken."""
        raise NotImplementedError


class Exposure:
    """How long work is in flight (`busy`), and the longest stretch of that without a look at the lifeline."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.busy = 0.0
        self.longest_unwatched = 0.0
        self._since: float | None = None
        self._last_look = 0.0

    def queued(self, since: float) -> None:
        """Work has been in flight since `since`, unless it already was."""
        if self._since is None:
            self._since = self._last_look = since

    def looked(self) -> None:
        """The lifeline was looked at just now."""
        if self._since is not None:
            now = self.clock()
            self.longest_unwatched = max(self.longest_unwatched, now - self._last_look)
            self._last_look = now

    def emptied(self) -> None:
        """Nothing is in flight any more."""
        if self._since is not None:
            self.looked()
            self.busy += self._last_look - self._since
            self._since = None


class Work:
    """One device and the one who watches over it. `look(in_flight)` raises when the client must leave."""

    def __init__(self, device: Device, look: Callable[[int], None], exposure: Exposure) -> None:
        self.device = device
        self.look = look
        self.exposure = exposure
        self.waits: collections.deque[float] = collections.deque(maxlen=RECENT)
        """What the last pieces took beyond their kernels: their turn behind others on the GPU, or the host's delay."""

    def watch(self, in_flight: int) -> None:
        self.exposure.looked()
        self.look(in_flight)

    def enqueue(self, slot: int, count: int, size: int) -> None:
        began = self.exposure.clock()
        self.device.enqueue(slot, count, size)
        # A kernel's first launch loads its code, up to 130 ms in which nothing of it is in flight: a piece of one
        # kernel counts from the return of the call, a longer one (whose code is loaded) from its beginning.
        self.exposure.queued(began if count > 1 else self.exposure.clock())

    def drain(self) -> None:
        self.device.drain()
        self.exposure.emptied()


class Run(NamedTuple):
    """What running a number of kernels came to."""

    seconds: float  # first start event to last end event
    pieces: int
    in_flight_most: int
    gap_seconds: float
    kernel_seconds: float  # of the last piece
    each: list[float]  # seconds a kernel, one entry a piece; empty where `heed` was told of each


def run(
    work: Work,
    iterations: int,
    size: int,
    kernel_seconds: float,
    most: int | None = None,
    *,
    heed: Callable[[int, float], bool] | None = None,
) -> Run:
    """Run exactly `iterations` kernels of `size`, in pieces, watching between them.

    `kernel_seconds` is how long one is known or predicted to take; it follows what the pieces really take.
    `most` bounds the kernels in a piece below what would fit (1: each is timed by itself).
    `heed(count, seconds)` is told of each piece: its kernels, and the time from the end of the piece before it to its
    own end. Once it says False nothing more is queued.
    """
    device, left = work.device, iterations
    flying: collections.deque[int] = collections.deque()  # slots, oldest first
    counts = [0] * SLOTS
    pieces = in_flight_most = 0
    gaps = 0.0
    previous: int | None = None
    each: list[float] = []
    clock = work.exposure.clock
    queued_at = [0.0] * SLOTS
    emptied_at = 0.0  # when the piece before was seen to have ended
    recent = collections.deque([kernel_seconds], maxlen=RECENT)
    try:
        while left or flying:
            work.watch(len(flying))
            slowest, wait = max(recent), max(work.waits, default=0.0)
            if left and _room_for_a_piece(len(flying), slowest, wait):
                slot = 0 if pieces == 0 else 1 + (pieces - 1) % (SLOTS - 1)
                fit = max(1, int(min(PIECE_SECONDS, TWO_PIECES_SECONDS - wait) / max(slowest, 1e-9)))
                counts[slot] = count = min(left, most or device.piece_most, fit)
                flying.append(slot)  # before the call: it may fail half-way
                work.enqueue(slot, count, size)
                queued_at[slot] = clock()
                left -= count
                pieces += 1
                in_flight_most = max(in_flight_most, len(flying))
            else:
                slot = flying[0]
                device.wait(slot)
                flying.popleft()
                if not flying:
                    work.exposure.emptied()
                seconds = device.between(slot, slot)
                kernel_seconds = seconds / counts[slot]
                recent.append(kernel_seconds)
                now = clock()
                work.waits.append(max(0.0, now - max(queued_at[slot], emptied_at) - seconds))
                emptied_at = now
                gap = device.gap(previous, slot) if previous is not None else 0.0
                gaps += gap
                previous = slot
                if heed is None:
                    each.append(kernel_seconds)
                elif not heed(counts[slot], gap + seconds):
                    left = 0
    except BaseException:
        work.drain()
        raise
    total = device.between(0, previous) if previous is not None else 0.0
    return Run(total, pieces, in_flight_most, gaps, kernel_seconds, each)


def _room_for_a_piece(in_flight: int, kernel_seconds: float, wait: float) -> bool:
    if in_flight == 0:
        return True
    return in_flight == 1 and 2 * (max(PIECE_SECONDS, kernel_seconds) + wait) <= TWO_PIECES_SECONDS


def predict(work: Work, size: int) -> float:
    """How long one kernel of `size` will take under this cap, from small ones, one in flight at a time.

    Sizes double from the device's smallest as long as the next is predicted to be allowed. Each size is run a few
    times and the shortest taken: the first launch of a kernel also loads its code, and a small kernel waits for its
    turn beside a busy neighbour, which says nothing about a larger one. Raises `KernelTooLong`.
    """
    tried, exponent = min(work.device.small, size), work.device.exponent
    while True:
        seconds = min(_alone(work, tried) for _ in range(TRIES))
        predicted = seconds * (size / tried) ** exponent
        larger = min(2 * tried, size)
        if tried == size or seconds * (larger / tried) ** exponent > KERNEL_SECONDS_MOST:
            break
        tried = larger
    if predicted > KERNEL_SECONDS_MOST:
        raise KernelTooLong(
            f"one kernel of size {size} would take about {predicted * 1000:.0f} ms under this cap (predicted from"
            f" {seconds * 1000:.3g} ms for {tried}); at most {KERNEL_SECONDS_MOST * 1000:.0f} ms are allowed"
        )
    return predicted


def _alone(work: Work, size: int) -> float:
    return run(work, 1, size, PIECE_SECONDS, most=1).seconds


def fill(work: Work, seed: int) -> None:
    """Fill the input with random values, one short step in flight at a time."""
    steps = iter(work.device.fill(seed))
    try:
        while True:
            work.watch(0)
            if next(steps, work) is work:
                return
            work.exposure.queued(work.exposure.clock())  # one kernel: see `Work.enqueue`
            work.watch(1)
            work.drain()
    except BaseException:
        work.drain()
        raise
