"""Several passes, and work under load: what is counted, when it has settled, and that it ends as everything ends."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpswatch.client.sustained import SAMPLES_MOST, Request, Sustained, is_settled


def fed(request: Request, kernel_seconds, pieces: int = 100_000) -> Sustained:
    """Feed pieces of 4 ms of kernels that take `kernel_seconds(at)` until there is enough."""
    load, at = Sustained(request), 0.0
    for _ in range(pieces):
        kernel = kernel_seconds(at)
        count = max(1, int(0.004 / kernel))
        at += count * kernel
        if not load.heed(count, count * kernel):
            break
    return load


def test_steady_work_has_settled_at_once_and_is_sampled_for_as_long_as_asked() -> None:
    load = fed(Request(seconds=0.3, settle_least=0.2), lambda _at: 0.0002)
    assert load.settled is True
    assert 0.2 <= load.settle_seconds < 0.3
    assert 0.3 <= load.seconds < 0.35
    assert load.samples == pytest.approx([0.0002] * len(load.samples))
    assert load.iterations == pytest.approx(load.seconds / 0.0002, rel=0.01)


def test_a_clock_that_falls_is_waited_for() -> None:
    """742 TFLOPS at first, 647 from 0.4 s on: no sample of the fast time gets in."""
    load = fed(Request(seconds=0.3, settle_most=2.0), lambda at: 0.000185 if at < 0.39 else 0.000212)
    assert load.settled is True
    assert load.settle_seconds > 0.4
    assert min(load.samples) > 0.0002


def test_what_never_settles_is_sampled_all_the_same_and_says_so() -> None:
    load = fed(Request(seconds=0.3, settle_most=0.6), lambda at: 0.0002 * (1 + at))
    assert load.settled is False
    assert load.settle_seconds >= 0.6
    assert load.samples


def test_an_open_ended_load_goes_on_until_it_is_enough_and_keeps_the_newest_samples() -> None:
    load = fed(Request(seconds=0.1, settle_least=0, settle_most=0, open_ended=True), lambda _at: 0.001, pieces=5000)
    assert not load.enough
    assert len(load.samples) == SAMPLES_MOST
    load.enough = True
    assert load.heed(1, 0.004) is False


@given(st.lists(st.floats(1e-5, 0.05), min_size=1, max_size=300))
def test_every_sample_is_a_block_and_lies_between_its_pieces(pieces: list[float]) -> None:
    load = Sustained(Request(seconds=100.0, settle_least=0, settle_most=0))
    for seconds in pieces:
        assert load.heed(1, seconds)
    assert all(min(pieces) * 0.999 <= sample <= max(pieces) * 1.001 for sample in load.samples)
    assert load.seconds + load.settle_seconds <= sum(pieces) * 1.001


def test_two_windows_are_compared_by_their_medians() -> None:
    assert not is_settled([1.0] * 5, 0.01)
    assert is_settled([2.0, 1.0, 1.0, 9.0, 1.0, 1.0, 1.0], 0.01)
    assert not is_settled([1.0, 1.0, 1.0, 1.1, 1.1, 1.1], 0.01)


SUSTAINED = {"seconds": 0.1, "block": 0.01, "settle_least": 0.02, "settle_most": 0.1}


def test_a_cell_of_several_passes_and_sustained_work(start, stack) -> None:
    said = start().through(passes=3, rest=0.01, sustained=SUSTAINED, samples=0)["result"]
    assert len(said["passes"]) == 3
    assert said["seconds"] == pytest.approx(said["passes"][0], abs=1e-8)
    sustained = said["sustained"]
    assert sustained["samples"]
    assert sustained["seconds"] >= 0.1
    (began, ended), (first, last) = said["phases"]["passes"], said["phases"]["sustained"]
    assert began < ended <= first < last <= time.monotonic()
    assert ended - began >= 0.02, "the rests between passes"
    assert stack.left(1)[0]["in_flight"] == 0


@pytest.mark.parametrize("kind", ["stream", "launch"])
def test_other_kinds_of_work(start, stack, kind: str) -> None:
    said = start().through(kind=kind, passes=0, samples=0, sustained=SUSTAINED)["result"]
    assert said["kind"] == kind
    assert said["passes"] == []
    assert said["sustained"]["iterations"] > 0
    assert said["bytes_each"] == (2 * 8 * 96 * 96 * 4 if kind == "stream" else None)
    assert stack.left(1)[0]["in_flight"] == 0


def test_a_quick_cell_says_what_it_always_said(start) -> None:
    said = start().through()["result"]
    assert said["passes"] == []
    assert said["sustained"] is None
    assert len(said["samples"]) == 3


def test_a_rest_is_watched(start, stack) -> None:
    launcher = start()
    launcher.cell(passes=50, rest=5.0)
    launcher.expect("forked")
    launcher.expect("attached")
    launcher.say(go=True)
    time.sleep(0.5)
    began = time.monotonic()
    launcher.launched.hang_up()
    assert launcher.expect("failed")["reason"] == "stopped"
    assert time.monotonic() - began < 2
    assert stack.left(1)[0]["in_flight"] == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"passes": 0},
        {"passes": 51},
        {"rest": -1},
        {"rest": "long"},
        {"kind": "bitcoin"},
        {"sustained": 3},
        {"sustained": {"seconds": -1}},
        {"sustained": {"seconds": 1e9}},
        {"beside": "x"},
    ],
)
def test_nonsense_is_refused_before_anything_is_started(start, wrong: dict[str, object]) -> None:
    launcher = start()
    launcher.cell(**wrong)
    failed = launcher.expect("failed")
    assert (failed["reason"], failed["phase"]) == ("client_nonsense", "launcher")
