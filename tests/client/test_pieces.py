"""The queueing by itself, on a device made of arithmetic: whatever happens, no way out leaves anything in flight."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpswatch.client import pieces


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Arithmetic(pieces.Device):
    """Each matmul takes (size/4096)^3 * `kernel_seconds`, each call of the host `host_seconds`. Runs in order."""

    def __init__(
        self,
        kernel_seconds: float,
        host_seconds: float = 1e-5,
        fails_at: int = -1,
        load_seconds: float = 0.0,
        turn_seconds: float = 0.0,
    ):
        self.clock, self.kernel, self.host = Clock(), kernel_seconds, host_seconds
        self.fails_at, self.calls = fails_at, 0
        self.turn = turn_seconds  # every piece waits so long for its turn on the GPU
        self.load_seconds, self.loaded = load_seconds, set()
        self.flying: list[int] = []
        self.starts, self.ends = [0.0] * pieces.SLOTS, [0.0] * pieces.SLOTS
        self.busy_until = 0.0
        self.ran: dict[int, int] = {}
        self.most, self.longest_flight, self.emptied_at = 0, 0.0, 0.0
        self.drains = 0

    def _call(self) -> None:
        self.clock.now += self.host
        self.calls += 1
        if self.calls == self.fails_at:
            raise MemoryError

    def enqueue(self, slot: int, count: int, size: int) -> None:
        assert slot not in self.flying, "a slot was used again while its piece was in flight"
        self.starts[slot] = max(self.busy_until, self.clock.now) + self.turn
        if size not in self.loaded:
            self.loaded.add(size)
            self.clock.now += self.load_seconds
        self.ends[slot] = max(self.starts[slot], self.clock.now) + count * self.kernel * (size / 4096) ** 3
        self.busy_until = self.ends[slot]
        self.flying.append(slot)
        self.ran[size] = self.ran.get(size, 0) + count
        self.most = max(self.most, len(self.flying))
        if len(self.flying) > 1:
            self.longest_flight = max(self.longest_flight, self.ends[slot] - self.starts[self.flying[0]])
        self._call()

    def wait(self, slot: int) -> None:
        self._call()
        assert slot == self.flying[0], "it must wait for the oldest piece"
        self.clock.now = max(self.clock.now, self.ends[slot])
        self.flying.pop(0)

    def between(self, first: int, last: int) -> float:
        self._call()
        return self.ends[last] - self.starts[first]

    def gap(self, before: int, after: int) -> float:
        return self.starts[after] - self.ends[before]

    def fill(self, seed: int):  # noqa: ARG002 -- arithmetic needs no values
        for _ in range(4):
            self.flying.append(0)
            self._call()
            yield

    def drain(self) -> None:
        self.drains += 1
        self.clock.now = max(self.clock.now, self.busy_until)
        self.flying.clear()


class Told(BaseException):
    """What a look raises when the client must leave."""


def work_on(device: Arithmetic, leave_at: int = -1):
    looks: list[tuple[int, float]] = []

    def look(in_flight: int) -> None:
        assert in_flight == len(device.flying)
        looks.append((in_flight, device.clock.now))
        if len(looks) == leave_at:
            raise Told

    return pieces.Work(device, look, pieces.Exposure(device.clock)), looks


kernels = st.floats(min_value=1e-6, max_value=0.09)


@given(kernel=kernels, iterations=st.integers(1, 300), most=st.sampled_from([None, 1, 3]))
def test_exactly_the_iterations_asked_for_run_and_none_is_left(
    kernel: float, iterations: int, most: int | None
) -> None:
    device = Arithmetic(kernel)
    work, looks = work_on(device)
    run = pieces.run(work, iterations, 4096, kernel, most=most)
    assert device.ran == {4096: iterations}
    assert device.flying == []
    assert run.in_flight_most == device.most <= 2
    assert run.seconds == pytest.approx(iterations * kernel + run.gap_seconds)
    assert len(run.each) == run.pieces
    assert len(looks) == 2 * run.pieces, "a look before every piece is queued and before every wait"


@given(kernel=kernels, iterations=st.integers(1, 300))
def test_what_is_in_flight_is_bounded_by_time(kernel: float, iterations: int) -> None:
    device = Arithmetic(kernel)
    work, _ = work_on(device)
    run = pieces.run(work, iterations, 4096, kernel)
    assert device.longest_flight <= pieces.TWO_PIECES_SECONDS + 1e-9
    if kernel > pieces.TWO_PIECES_SECONDS / 2:
        assert run.in_flight_most == 1
    if kernel < pieces.PIECE_SECONDS and iterations * kernel > 3 * pieces.PIECE_SECONDS:
        assert run.in_flight_most == 2
        assert run.gap_seconds == pytest.approx(0, abs=1e-9), "the queue ran dry"
    assert work.exposure.longest_unwatched <= max(pieces.PIECE_SECONDS, kernel) + 1e-3


@given(turn=st.floats(0.0, 0.015), kernel=st.floats(1e-5, 0.003), iterations=st.integers(20, 150))
def test_what_is_in_flight_stays_bounded_by_time_where_every_piece_waits_for_its_turn(
    turn: float, kernel: float, iterations: int
) -> None:
    device = Arithmetic(kernel, turn_seconds=turn)
    work, _ = work_on(device)
    kernel_seconds = pieces.predict(work, 4096)
    device.longest_flight = 0.0
    run = pieces.run(work, iterations, 4096, kernel_seconds)
    assert device.longest_flight + turn <= pieces.TWO_PIECES_SECONDS + 1e-3
    assert work.exposure.longest_unwatched <= pieces.TWO_PIECES_SECONDS + 1e-3
    if turn < 0.0059 and run.pieces > 1:
        assert run.in_flight_most == 2
    if turn > 0.0061:
        assert run.in_flight_most == 1
    assert device.ran[4096] >= iterations


def test_a_piece_that_others_stretch_makes_the_next_ones_shorter_and_lone_for_a_while() -> None:
    device = Arithmetic(0.0004)
    work, _ = work_on(device)
    begun = []
    enqueue = device.enqueue

    def stretched(slot: int, count: int, size: int) -> None:
        begun.append(count)
        device.kernel = 0.002 if len(begun) == 3 else 0.0004  # one piece in the midst of others' work
        enqueue(slot, count, size)

    device.enqueue = stretched
    pieces.run(work, 200, 4096, 0.0004)
    after = begun.index(min(begun))
    assert begun[0] == 10
    assert begun[after : after + pieces.RECENT] == [2] * pieces.RECENT, begun
    assert set(begun[after + pieces.RECENT : -1]) <= {9, 10}, begun


@given(kernel=kernels, iterations=st.integers(1, 100), leave_at=st.integers(1, 60))
def test_told_to_leave_it_queues_nothing_more_and_drains_first(kernel: float, iterations: int, leave_at: int) -> None:
    device = Arithmetic(kernel)
    work, looks = work_on(device, leave_at)
    try:
        pieces.run(work, iterations, 4096, kernel)
    except Told:
        assert device.drains == 1
        assert len(looks) == leave_at
    else:
        assert len(looks) < leave_at
    assert device.flying == []


@settings(max_examples=200)
@given(kernel=kernels, fails_at=st.integers(1, 60), size=st.sampled_from([512, 1000, 4096]))
def test_a_failure_at_any_call_leaves_nothing_in_flight(kernel: float, fails_at: int, size: int) -> None:
    device = Arithmetic(kernel, fails_at=fails_at)
    work, _ = work_on(device)
    try:
        pieces.fill(work, seed=1)
        predicted = pieces.predict(work, size)
        pieces.run(work, 20, size, predicted)
    except MemoryError:
        assert device.drains >= 1
    except pieces.KernelTooLong:
        pass
    assert device.flying == []


@given(kernel=st.floats(1e-5, 0.5), size=st.sampled_from([256, 512, 3000, 4096, 8192, 16384]))
def test_the_prediction_is_right_and_never_runs_more_than_one_piece_at_once(kernel: float, size: int) -> None:
    device = Arithmetic(kernel, load_seconds=0.05)
    work, _ = work_on(device)
    one = kernel * (size / 4096) ** 3
    try:
        predicted = pieces.predict(work, size)
    except pieces.KernelTooLong:
        assert one > pieces.KERNEL_SECONDS_MOST * 0.99
        assert size not in device.ran or size <= device.small
    else:
        assert predicted == pytest.approx(one, rel=0.01)
        assert one <= pieces.KERNEL_SECONDS_MOST * 1.01
    assert device.most == 1
    assert device.flying == []


def test_loading_a_kernels_code_is_not_taken_for_work_in_flight() -> None:
    device = Arithmetic(0.002, load_seconds=0.130)
    work, _ = work_on(device)
    pieces.predict(work, 4096)
    assert work.exposure.longest_unwatched < 0.01


def test_filling_is_done_in_steps_with_one_in_flight() -> None:
    device = Arithmetic(0.001)
    work, looks = work_on(device)
    pieces.fill(work, seed=3)
    assert device.drains == 4
    assert {in_flight for in_flight, _ in looks} == {0, 1}
    assert device.flying == []


def test_exposure_counts_the_time_in_flight_and_the_longest_stretch_without_a_look() -> None:
    clock = Clock()
    exposure = pieces.Exposure(clock)
    exposure.looked()
    clock.now = 5.0
    exposure.queued(5.0)
    clock.now = 6.0
    exposure.looked()
    clock.now = 9.0
    exposure.looked()
    exposure.queued(8.0)
    clock.now = 9.5
    exposure.emptied()
    clock.now = 20.0
    exposure.looked()
    assert exposure.busy == 4.5
    assert exposure.longest_unwatched == 3.0
