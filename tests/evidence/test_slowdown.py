"""A slowdown's interval, made of two: it holds the true one at least as often as it says."""

from __future__ import annotations

import random

import pytest

from mpswatch.evidence.median import Interval, median_interval, summarize
from mpswatch.evidence.slowdown import EACH, slowdown


def test_a_quarter_lost_is_a_quarter() -> None:
    lost = slowdown(400.0, 300.0, Interval(low=396, high=404, coverage=1), Interval(low=297, high=303, coverage=1))
    assert lost.value == pytest.approx(0.25)
    assert lost.low == pytest.approx(1 - 303 / 396)
    assert lost.high == pytest.approx(1 - 297 / 404)


def test_a_faster_victim_has_a_negative_slowdown() -> None:
    assert slowdown(100.0, 110.0, None, None).value == pytest.approx(-0.1)


def test_without_both_intervals_there_is_none() -> None:
    lost = slowdown(100.0, 90.0, Interval(low=99, high=101, coverage=1), None)
    assert (lost.low, lost.high) == (None, None)


@pytest.mark.parametrize("count", [8, 25])
def test_the_interval_holds_the_true_slowdown_at_least_95_times_in_100(count: int) -> None:
    dice = random.Random(count)
    trials, held = 2000, 0
    for _ in range(trials):
        alone = [dice.gauss(400, 12) for _ in range(count)]
        beside = [300 * dice.lognormvariate(0, 0.05) for _ in range(count)]
        lost = slowdown(
            summarize(alone).median,
            summarize(beside).median,
            median_interval(alone, EACH),
            median_interval(beside, EACH),
        )
        assert lost.low is not None
        assert lost.high is not None
        assert lost.low <= lost.value <= lost.high
        held += lost.low <= 0.25 <= lost.high
    assert held / trials >= 0.95
