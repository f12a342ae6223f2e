"""The interval of a median by order statistics: whatever the distribution is, it holds.

For n independent samples the number of those below the true median is binomial(n, 1/2). So the k-th smallest and the
k-th largest enclose it with probability 1 - 2 P(fewer than k of n), exactly for a continuous distribution and at
least that for any other (David and Nagaraja, Order Statistics, 7.1; Le Boudec, Performance Evaluation, 2.2).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95

METHOD = "order statistics of the samples: distribution-free, at least the confidence stated if they are independent"


@dataclass(frozen=True, kw_only=True)
class Interval:
    """From `low` to `high`; `coverage` is the probability that it holds the median, at least what was asked."""

    low: float
    high: float
    coverage: float


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What samples come to. `median` is one of them (the lower middle); `spread` is (largest - smallest) / median."""

    median: float
    interval: Interval | None
    spread: float
    count: int

    @property
    def width(self) -> float:
        """(high - low) / median; infinite where there are too few samples for an interval."""
        return math.inf if self.interval is None else (self.interval.high - self.interval.low) / self.median


def rank(count: int, confidence: float) -> tuple[int, float] | None:
    """The largest k whose k-th smallest and k-th largest of `count` samples enclose the median with at least
    `confidence`, and how probably they do; None where even smallest and largest do not."""
    below, found = 0.0, None
    for k in range(1, count // 2 + 1):
        below += math.comb(count, k - 1) * 0.5**count  # P(fewer than k of them below the median)
        coverage = 1 - 2 * below
        if coverage < confidence:
            break
        found = (k, coverage)
    return found


def median_interval(samples: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """The interval of the median of `samples`; None where there are too few (fewer than 6 for 95 %)."""
    found = rank(len(samples), confidence)
    if found is None:
        return None
    k, coverage = found
    ordered = sorted(samples)
    return Interval(low=ordered[k - 1], high=ordered[-k], coverage=coverage)


def summarize(samples: Sequence[float], confidence: float = CONFIDENCE) -> Summary:
    """Median, interval and spread of at least one positive sample."""
    median = statistics.median_low(samples)
    return Summary(
        median=median,
        interval=median_interval(samples, confidence),
        spread=spread(samples),
        count=len(samples),
    )


def spread(samples: Sequence[float]) -> float:
    """(largest - smallest) / median of positive samples."""
    return (max(samples) - min(samples)) / statistics.median_low(samples)


def coefficient_of_variation(samples: Sequence[float]) -> float:
    """Standard deviation (of a sample) over mean; 0 for a single one."""
    return statistics.stdev(samples) / statistics.fmean(samples) if len(samples) > 1 else 0.0
