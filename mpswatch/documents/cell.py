"""One cap of a sweep: what its client measured, and what that says about the cap."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from mpswatch.documents.envelope import Document, State
from mpswatch.documents.gpu import Conditions, ConditionsDuring
from mpswatch.documents.numbers import Cap, Number32, Ratio, Rough, Seconds, Speed, Spread, Whole, Work
from mpswatch.documents.reasons import Reason
from mpswatch.documents.tenants import ReferenceTenant


class SmExpectation(Document, frozen=True, kw_only=True):
    """What a cap implies for the number of SMs a client sees: above < n <= at_most.

    From `total` SMs of the whole device: at_most = max(total*cap/100, 8), above = total*cap/100 - 8.
    """

    total: Number32
    at_most: Rough
    above: Rough


class CellTimings(Document, frozen=True, kw_only=True):
    """Where a cell's time went, in seconds; None where that phase was not reached."""

    fork: Seconds | None = None
    context: Seconds | None = None
    allocate: Seconds | None = None
    warm_up: Seconds | None = None
    measure: Seconds | None = None
    attached_to_gone: Seconds | None = None
    total: Seconds | None = None
    busy: Seconds | None = None


class Pieces(Document, frozen=True, kw_only=True):
    """How the work was queued: bounded pieces, and the time nobody looked at the lifeline (seconds)."""

    count: Whole
    in_flight_most: Whole
    longest_unwatched: Seconds
    gap_ratio: Ratio
    host_bound: bool


class Figure(Document, frozen=True, kw_only=True):
    """One named quantity of a cell (burst, or sustained): the median with its interval.

    `tflops` is that of the median sample, `interval_low` and `interval_high` those of the interval's ends; they are
    None where there are too few samples for `confidence`. `spread` is (largest - smallest) / median of the samples,
    `between_repeats` the same of the repeats' own medians. `samples` are seconds per iteration, in the order taken.
    `settled` says whether the times had settled before the first sample, in every repeat.
    """

    tflops: Speed
    interval_low: Speed | None
    interval_high: Speed | None
    confidence: Ratio
    within_width: bool
    spread: Spread
    between_repeats: Spread
    count: Whole
    repeats: Whole
    samples: tuple[Work, ...] = ()
    settled: bool | None = None
    settle_seconds: Seconds | None = None
    conditions_before: Conditions | None = None
    conditions_during: ConditionsDuring | None = None
    conditions_after: Conditions | None = None


class Repeat(Document, frozen=True, kw_only=True):
    """One client of a cap that was measured more than once: `order` is its place among all clients of the sweep.

    `passes` are the seconds of each pass of `iters` after a rest, `sustained` seconds per iteration under load.
    """

    order: Whole
    state: State
    unknown_reason: str | None = None
    failure: str | None = None
    measured_at: datetime | None = None
    client_pid: Number32 | None = None
    sm_count: Number32 | None = None
    passes: tuple[Work, ...] = ()
    sustained: tuple[Work, ...] = ()
    settled: bool | None = None
    longest_unwatched: Seconds | None = None
    busy: Seconds | None = None


CapEnforcement: TypeAlias = Literal["enforced", "not_enforced", "unknown"]


class CapVerdict(Document, frozen=True, kw_only=True):
    """Whether a cap is enforced, with what speaks for it, one sentence each. The rules are in docs/method.md."""

    verdict: CapEnforcement
    evidence: tuple[str, ...]


class Cell(Document, frozen=True, kw_only=True):
    """One cap of a sweep, one envelope. The first ten keys are the reference document's.

    `seconds` runs from the first start event to the last end event over exactly `iters` matmuls;
    `tflops` is 2*size^3*iters/seconds/1e12. Both are None unless the client was seen in the daemon's own
    list on the server that the preflight saw. `samples` are seconds per iteration, taken outside `seconds`.
    """

    cap: Cap
    iters: Whole
    size: Whole
    seconds: Work | None
    tflops: Speed | None
    client_reported_pid: Number32 | None
    client_pid_is_namespaced: bool | None
    mps_clients_joined_during_cell: tuple[Number32, ...] | None
    self_was_managed: bool | None
    managed_clients_after_cell: tuple[Number32, ...] | None
    # from here on ours
    state: State = "measured"
    unknown_reason: str | None = None
    failure: str | None = None
    order: Whole | None = None
    measured_at: datetime | None = None
    clock: str | None = None
    client_pid: Number32 | None = None
    server_pid: Number32 | None = None
    sm_count: Number32 | None = None
    sm_count_expected: SmExpectation | None = None
    sm_count_as_expected: bool | None = None
    samples: tuple[Work, ...] = ()
    tenants_present: tuple[ReferenceTenant, ...] | None = None
    conditions_before: Conditions | None = None
    conditions_after: Conditions | None = None
    timings: CellTimings | None = None
    pieces: Pieces | None = None
    environment: dict[str, str] | None = None
    burst: Figure | None = None
    sustained: Figure | None = None
    repeats: tuple[Repeat, ...] = ()
    verdict: CapVerdict | None = None
    unknown: dict[str, Reason] = {}

    def __post_init__(self) -> None:
        if (self.state == "unknown") != (self.unknown_reason is not None):
            raise ValueError(f"state {self.state!r} does not go with unknown_reason {self.unknown_reason!r}")
        if (self.state == "unknown") != (self.seconds is None) or (self.seconds is None) != (self.tflops is None):
            raise ValueError(f"state {self.state!r} does not go with seconds {self.seconds!r}, tflops {self.tflops!r}")
        if self.state != "unknown" and self.self_was_managed is not True:
            raise ValueError("a cell counts only if its client was seen in the daemon's own list")
