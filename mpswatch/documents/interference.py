"""Interference: what pairs of our own capped clients cost each other."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from mpswatch.documents.envelope import SCHEMA_VERSION, Document, Envelope, State
from mpswatch.documents.gpu import ConditionsDuring, Gpu
from mpswatch.documents.mps import MpsFacts
from mpswatch.documents.numbers import Cap, Number32, Ratio, Seconds, Seed, Slowdown, Speed, Spread, Whole
from mpswatch.documents.reasons import Reason
from mpswatch.documents.tenants import ReferenceTenant

WorkKind: TypeAlias = Literal["matmul", "stream", "launch"]
"""Compute (a square matmul), memory bandwidth (one pass over large memory), latency (tiny kernels in a row)."""


class Rate(Document, frozen=True, kw_only=True):
    """How fast one client worked under load: the median of `count` samples, its interval and its spread.

    `unit` is TFLOPS, GB/s or launches/s. The interval holds the median with at least `confidence`; its ends are None
    where there are too few samples. `spread` is (largest - smallest) / median.
    """

    unit: str
    value: Speed
    interval_low: Speed | None
    interval_high: Speed | None
    confidence: Ratio
    spread: Spread
    count: Whole
    settled: bool


class InterferenceCell(Document, frozen=True, kw_only=True):
    """One victim, alone beside the stack as it is (`aggressor_cap` None) or beside one aggressor; one envelope.

    `slowdown` is 1 - rate beside / rate alone (0.28: it lost 28 %), from `slowdown_low` to `slowdown_high` with at
    least 95 %; negative where it was faster. `aggressor` worked for the whole time in which `victim` was measured.
    """

    order: Whole
    victim_cap: Cap
    victim_kind: WorkKind
    aggressor_cap: Cap | None
    aggressor_kind: WorkKind | None
    state: State
    unknown_reason: str | None = None
    failure: str | None = None
    measured_at: datetime | None = None
    victim: Rate | None = None
    aggressor: Rate | None = None
    slowdown: Slowdown | None = None
    slowdown_low: Slowdown | None = None
    slowdown_high: Slowdown | None = None
    victim_pid: Number32 | None = None
    aggressor_pid: Number32 | None = None
    victim_sm_count: Number32 | None = None
    aggressor_sm_count: Number32 | None = None
    conditions_during: ConditionsDuring | None = None
    longest_unwatched: Seconds | None = None
    unknown: dict[str, Reason] = {}

    def __post_init__(self) -> None:
        if (self.state == "unknown") != (self.unknown_reason is not None):
            raise ValueError(f"state {self.state!r} does not go with unknown_reason {self.unknown_reason!r}")
        if (self.state == "unknown") != (self.victim is None):
            raise ValueError(f"state {self.state!r} does not go with victim {self.victim!r}")


class InterferenceProtocol(Document, frozen=True, kw_only=True):
    """How interference was measured: seconds, and what each kind of work does."""

    size: Whole
    dtype: str
    seed: Seed
    client_runtime: str
    backend: str
    settle_seconds: Seconds
    window_seconds: Seconds
    kinds: dict[str, str]
    slowdown: str


class InterferenceDocument(Document, frozen=True, kw_only=True):
    """What pairs of our own capped clients cost each other on one GPU, beside the stack as it was."""

    schema_version: int
    kind: Literal["interference"] = "interference"
    what: str
    host: str
    run_id: str
    recorded_at: datetime
    started_at: datetime
    finished_at: datetime
    simulated: bool
    pipe_directory: str
    gpu: Gpu | None
    mps: MpsFacts | None
    protocol: InterferenceProtocol
    unmanaged_tenants: Envelope[tuple[ReferenceTenant, ...]]
    managed_clients_before: Envelope[tuple[Number32, ...]]
    solo: tuple[InterferenceCell, ...]
    pairs: tuple[InterferenceCell, ...]
    complete: bool
    partial_run_note: str | None = None
    trigger: str | None = None
    mpswatch_version: str | None = None
    launcher_timings: dict[str, Seconds] | None = None
    stuck_clients: tuple[Number32, ...] = ()

    def __post_init__(self) -> None:
        if self.schema_version != SCHEMA_VERSION:
            raise ValueError(f"schema_version {self.schema_version} is not {SCHEMA_VERSION}")
        states = {cell.state for cell in (*self.solo, *self.pairs)}
        if self.complete and "unknown" in states:
            raise ValueError("a complete measurement has no unknown cell")
        if (self.simulated and "measured" in states) or (not self.simulated and "simulated" in states):
            raise ValueError(f"simulated is {self.simulated}, but cells are {', '.join(sorted(states))}")
