"""The sweep: every cap of one GPU, measured one after the other."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from mpswatch.documents.cell import Cell
from mpswatch.documents.envelope import SCHEMA_VERSION, Document, Envelope
from mpswatch.documents.gpu import Gpu
from mpswatch.documents.mps import MpsFacts
from mpswatch.documents.numbers import Number32, Seconds, Seed, Speed, Whole
from mpswatch.documents.tenants import ReferenceTenant


class Protocol(Document, frozen=True, kw_only=True):
    """How it was measured. The first six keys are the reference document's."""

    caps_percent: str
    iters: Whole
    matrix_size: Whole
    dtype: str
    op: str
    client_runtime: str
    plan: str = "quick"
    backend: str | None = None
    seed: Seed | None = None
    input_values: str | None = None
    warm_up_iterations: Whole | None = None
    l2_state: str | None = None
    cells_run: tuple[str, ...] | None = None
    interval_method: str | None = None


class SweepDocument(Document, frozen=True, kw_only=True):
    """One sweep of one GPU: a superset of the reference harness's document (tests/reference)."""

    schema_version: int
    what: str
    harness: str
    harness_note: str
    host: str
    recorded_at: datetime
    pipe_directory: str
    cap_semantics: str
    protocol: Protocol
    managed_clients_before: Envelope[tuple[Number32, ...]]
    managed_clients_after: Envelope[tuple[Number32, ...]]
    unmanaged_tenants: Envelope[tuple[ReferenceTenant, ...]]
    cells: tuple[Cell, ...]
    tflops_by_cap: Envelope[dict[str, Speed | None]]
    complete_sweep: bool
    partial_run_note: str | None
    # from here on ours
    kind: Literal["sweep"] = "sweep"
    run_id: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    simulated: bool = False
    mpswatch_version: str | None = None
    gpu: Gpu | None = None
    mps: MpsFacts | None = None
    trigger: str | None = None
    launcher_timings: dict[str, Seconds] | None = None
    client_facts: dict[str, str] | None = None
    stuck_clients: tuple[Number32, ...] = ()

    def __post_init__(self) -> None:
        if self.schema_version != SCHEMA_VERSION:
            raise ValueError(f"schema_version {self.schema_version} is not {SCHEMA_VERSION}")
        if self.complete_sweep != (self.partial_run_note is None):
            raise ValueError("a partial sweep, and no other, has a partial_run_note")
        if self.complete_sweep and any(cell.state == "unknown" for cell in self.cells):
            raise ValueError("a complete sweep has no unknown cell")
        states = {cell.state for cell in self.cells}
        if (self.simulated and "measured" in states) or (not self.simulated and "simulated" in states):
            raise ValueError(f"simulated is {self.simulated}, but cells are {', '.join(sorted(states))}")
        # the reference's cells have no state of their own: its envelopes are all that can say it
        looked = (self.managed_clients_before, self.managed_clients_after, self.unmanaged_tenants, self.tflops_by_cap)
        if not self.simulated and any(quantity.state == "simulated" for quantity in looked):
            raise ValueError("simulated is False, but a quantity is simulated")
