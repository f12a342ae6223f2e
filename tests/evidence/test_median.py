"""The interval of a median against distributions whose median is known: it must hold it as often as it says."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpswatch.evidence.median import coefficient_of_variation, median_interval, rank, spread, summarize

TRIALS = 3000
SLACK = 3 * math.sqrt(0.05 * 0.95 / TRIALS)
"""Three standard deviations of a share of 95 % in so many trials."""

DISTRIBUTIONS: dict[str, tuple[Callable[[random.Random], float], float]] = {
    "normal": (lambda dice: dice.gauss(100, 5), 100.0),
    "skewed": (lambda dice: dice.lognormvariate(0, 1), 1.0),
    "exponential": (lambda dice: dice.expovariate(1), math.log(2)),
    "uniform": (lambda dice: dice.random(), 0.5),
    "heavy tails": (lambda dice: math.tan(math.pi * (dice.random() - 0.5)), 0.0),
    "two humps": (lambda dice: dice.gauss(0, 1) + dice.choice((-5, 5)), 0.0),
}


@pytest.mark.parametrize("count", [6, 8, 20, 45])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_interval_holds_the_true_median_as_often_as_it_says(name: str, count: int) -> None:
    draw, median = DISTRIBUTIONS[name]
    dice = random.Random(f"{name} {count}")
    held, promised = 0, 0.0
    for _ in range(TRIALS):
        interval = median_interval([draw(dice) for _ in range(count)])
        assert interval is not None
        held += interval.low <= median <= interval.high
        promised = interval.coverage
    assert promised >= 0.95
    assert held / TRIALS >= 0.95 - SLACK
    assert abs(held / TRIALS - promised) <= SLACK, "for a continuous distribution it is exact"


def test_samples_that_repeat_make_the_interval_hold_more_often_never_less() -> None:
    dice = random.Random(1)
    held = 0
    for _ in range(TRIALS):
        interval = median_interval([float(dice.choice((1, 2, 2, 3))) for _ in range(12)])
        assert interval is not None
        held += interval.low <= 2.0 <= interval.high
    assert held / TRIALS >= 0.95


@pytest.mark.parametrize(
    ("count", "expected"),
    # the classical table: n, and the rank that 95 % takes
    [(5, None), (6, 1), (8, 1), (9, 2), (10, 2), (12, 3), (20, 6), (50, 18), (100, 40)],
)
def test_the_ranks_are_those_of_the_published_tables(count: int, expected: int | None) -> None:
    found = rank(count, 0.95)
    assert (found[0] if found else None) == expected


@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=60), st.sampled_from([0.9, 0.95, 0.975, 0.99]))
def test_the_interval_holds_the_samples_own_median_and_is_made_of_samples(samples: list[float], sure: float) -> None:
    interval = median_interval(samples, sure)
    summary = summarize(samples, sure)
    assert summary.median in samples
    assert summary.median == statistics.median_low(samples)
    if interval is None:
        assert len(samples) < 11
        assert summary.width == math.inf
    else:
        assert interval.coverage >= sure
        assert {interval.low, interval.high} <= set(samples)
        assert interval.low <= summary.median <= interval.high


@given(st.lists(st.floats(0.001, 1e6), min_size=2, max_size=30), st.floats(0.1, 10))
def test_ratios_do_not_depend_on_the_unit(samples: list[float], factor: float) -> None:
    scaled = [factor * sample for sample in samples]
    assert spread(scaled) == pytest.approx(spread(samples))
    assert coefficient_of_variation(scaled) == pytest.approx(coefficient_of_variation(samples), abs=1e-9)
