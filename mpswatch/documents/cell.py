"""One cap of a sweep: what its client measured, and what that says about the cap."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from mpswatch.documents.envelope import Document, State
from mpswatch.documents.gpu import Conditions, ConditionsDuring
from mpswatch.documents.reasons import Reason
from mpswatch.documents.tenants import ReferenceTenant


class SmExpectation(Document, frozen=True, kw_only=True):
    """What a cap implies for the number of SMs a client sees: above < n <= at_most.

    From `total` SMs of the whole device: at_most = max(total*cap/100, 8), above = total*cap/100 - 8.
    """

    total: int
    at_most: float
    above: float


class CellTimings(Document, frozen=True, kw_only=True):
    """Where a cell's time went, in seconds; None where that phase was not reached."""

    fork: float | None = None
    context: float | None = None
    allocate: float | None = None
    warm_up: float | None = None
    measure: float | None = None
    attached_to_gone: float | None = None
    total: float | None = None
    busy: float | None = None


class Pieces(Document, frozen=True, kw_only=True):
    """How the work was queued: bounded pieces, and the time nobody looked at the lifeline (seconds)."""

    count: int
    in_flight_most: int
    longest_unwatched: float
    gap_ratio: float
    host_bound: bool


class Figure(Document, frozen=True, kw_only=True):
    """One named quantity of a cell (burst, or sustained): the median with its interval.

    `tflops` is that of the median sample, `interval_low` and `interval_high` those of the interval's ends; they are
    None where there are too few samples for `confidence`. `spread` is (largest - smallest) / median of the samples,
    `between_repeats` the same of the repeats' own medians. `samples` are seconds per iteration, in the order taken.
    `settled` says whether the times had settled before the first sample, in every repeat.
    """

    tflops: float
    interval_low: float | None
    interval_high: float | None
    confidence: float
    within_width: bool
    spread: float
    between_repeats: float
    count: int
    repeats: int
    samples: tuple[float, ...] = ()
    settled: bool | None = None
    settle_seconds: float | None = None
    conditions_before: Conditions | None = None
    conditions_during: ConditionsDuring | None = None
    conditions_after: Conditions | None = None


class Repeat(Document, frozen=True, kw_only=True):
    """One client of a cap that was measured more than once: `order` is its place among all clients of the sweep.

    `passes` are the seconds of each pass of `iters` after a rest, `sustained` seconds per iteration under load.
    """

    order: int
    state: State
    unknown_reason: str | None = None
    failure: str | None = None
    measured_at: datetime | None = None
    client_pid: int | None = None
    sm_count: int | None = None
    passes: tuple[float, ...] = ()
    sustained: tuple[float, ...] = ()
    settled: bool | None = None
    longest_unwatched: float | None = None
    busy: float | None = None


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

    cap: str
    iters: int
    size: int
    seconds: float | None
    tflops: float | None
    client_reported_pid: int | None
    client_pid_is_namespaced: bool | None
    mps_clients_joined_during_cell: tuple[int, ...] | None
    self_was_managed: bool | None
    managed_clients_after_cell: tuple[int, ...] | None
    # from here on ours
    state: State = "measured"
    unknown_reason: str | None = None
    failure: str | None = None
    order: int | None = None
    measured_at: datetime | None = None
    clock: str | None = None
    client_pid: int | None = None
    server_pid: int | None = None
    sm_count: int | None = None
    sm_count_expected: SmExpectation | None = None
    sm_count_as_expected: bool | None = None
    samples: tuple[float, ...] = ()
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
