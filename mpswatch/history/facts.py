"""What history keeps of a run: enough to draw and to judge it, and the key that says what it may be compared with."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from mpswatch.documents import QUANTITIES, Cell, Envelope, Quantity, ReferenceTenant, SweepDocument
from mpswatch.evidence.quantities import readings

UNNAMED = "(unnamed)"
"""How a foreign tenant counts whose name is unknown."""


class Series(NamedTuple):
    """What two runs must share to be compared as numbers: history never crosses any of these.

    Empty where a document does not say (the reference harness wrote no GPU and no daemon's name).
    """

    host: str
    daemon: str
    gpu_uuid: str
    plan: str
    op: str
    dtype: str
    size: int
    iters: int
    backend: str
    client_runtime: str
    simulated: bool

    @property
    def title(self) -> str:
        """One line for people."""
        work = f"{self.dtype} {self.op} {self.size}, {self.iters} iterations"
        where = f"{self.gpu_uuid or 'GPU not recorded'} under {self.daemon or 'daemon not recorded'} on {self.host}"
        simulated = "SIMULATED, " if self.simulated else ""
        return f"{simulated}{where}, plan {self.plan}, {work}, {self.backend or 'backend not recorded'}"


class Amount(msgspec.Struct, frozen=True, array_like=True):
    """One figure of a cap in TFLOPS, with its interval where there were enough samples for one.

    The clock (MHz) and the power (W) are those of this figure, as `evidence.quantities` says; None where unknown.
    """

    tflops: float
    low: float | None = None
    high: float | None = None
    sm_clock_mhz: float | None = None
    power_watts: float | None = None


class CapFacts(msgspec.Struct, frozen=True, array_like=True):
    """One cap of a run.

    `tflops` (the reference's quantity) is None exactly when `reason` says why; `burst` and `sustained` are there where
    the plan measured them. `foreign` are the names of the processes outside MPS beside this cell, sorted; None where
    that is unknown. Clock in MHz and power in watts are those of the look after the cell, and so go with `tflops`.
    """

    cap: str
    tflops: float | None
    reason: str | None
    burst: Amount | None = None
    sustained: Amount | None = None
    verdict: str | None = None
    sm_count: int | None = None
    sm_as_expected: bool | None = None
    foreign: tuple[str, ...] | None = None
    sm_clock_mhz: int | None = None
    power_watts: float | None = None

    def amount(self, quantity: Quantity) -> Amount | None:
        """Give one quantity of this cap; None where it was not measured. They are never mixed."""
        if quantity == "tflops":
            return None if self.tflops is None else Amount(self.tflops, None, None, self.sm_clock_mhz, self.power_watts)
        return self.burst if quantity == "burst" else self.sustained


class RunFacts(msgspec.Struct, frozen=True, array_like=True):
    """One run, without what only its own page needs. `started` and `finished` are aware, in UTC."""

    run_id: str
    series: Series
    started: datetime
    finished: datetime
    complete: bool
    note: str | None
    managed: int | None
    caps: tuple[CapFacts, ...]
    driver: str | None = None
    version: str | None = None
    gpu_name: str | None = None
    server: tuple[int | None, int | None] = (None, None)

    def of(self, cap: str) -> CapFacts | None:
        return next((facts for facts in self.caps if facts.cap == cap), None)

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """What its plan measured of each cap, as `evidence.quantities.quantities_of` says it of a document."""
        both = self.series.plan == "thorough" or any(facts.burst or facts.sustained for facts in self.caps)
        return ("burst", "sustained") if both else ("tflops",)

    @property
    def outcome(self) -> str:
        """`complete`, `partial`, or `failed` when not one cap has a number."""
        if self.complete:
            return "complete"
        return "failed" if all(facts.tflops is None for facts in self.caps) else "partial"


def series_of(document: SweepDocument) -> Series:
    """Name the series that a run belongs to."""
    protocol = document.protocol
    return Series(
        host=document.host,
        daemon=document.mps.daemon if document.mps is not None else "",
        gpu_uuid=document.gpu.uuid if document.gpu is not None else "",
        plan=protocol.plan,
        op=protocol.op,
        dtype=protocol.dtype,
        size=protocol.matrix_size,
        iters=protocol.iters,
        backend=protocol.backend or "",
        client_runtime=protocol.client_runtime,
        simulated=document.simulated,
    )


def facts_of(document: SweepDocument) -> RunFacts:
    """Take from a run what history needs. A cell that is not what the run's protocol says has no number here."""
    often = Counter(cell.cap for cell in document.cells)
    gpu, mps = document.gpu, document.mps
    return RunFacts(
        run_id=document.run_id or "",
        series=series_of(document),
        started=_utc(document.started_at or document.recorded_at),
        finished=_utc(document.finished_at or document.recorded_at),
        complete=document.complete_sweep,
        note=document.partial_run_note,
        managed=_count(document.managed_clients_before),
        caps=tuple(_cap(cell, document, often[cell.cap]) for cell in document.cells),
        driver=gpu.driver_version if gpu is not None else None,
        version=document.mpswatch_version,
        gpu_name=gpu.name if gpu is not None else None,
        server=(mps.server_pid, mps.server_start_ticks) if mps is not None else (None, None),
    )


def amounts_of(cell: Cell) -> dict[Quantity, Amount]:
    """Give what a cell measured, by quantity."""
    return {
        one.quantity: Amount(one.tflops, one.low, one.high, one.sm_clock_mhz, one.power_watts)
        for one in readings(cell, QUANTITIES)
        if one.tflops is not None
    }


def _cap(cell: Cell, document: SweepDocument, often: int) -> CapFacts:
    protocol = document.protocol
    reason = cell.unknown_reason
    if often > 1:
        reason = "cap_twice"
    elif (cell.size, cell.iters) != (protocol.matrix_size, protocol.iters):
        reason = "not_the_protocol"
    tenants = cell.tenants_present if cell.tenants_present is not None else document.unmanaged_tenants.value
    amounts = amounts_of(cell) if reason is None else {}
    after = cell.conditions_after
    return CapFacts(
        cap=cell.cap,
        tflops=cell.tflops if reason is None else None,
        reason=reason if reason is not None or cell.tflops is not None else "not_recorded",
        burst=amounts.get("burst"),
        sustained=amounts.get("sustained"),
        verdict=cell.verdict.verdict if cell.verdict is not None else None,
        sm_count=cell.sm_count,
        sm_as_expected=cell.sm_count_as_expected,
        foreign=None if tenants is None else tuple(sorted(map(_name, tenants))),
        sm_clock_mhz=after.sm_clock_mhz if after is not None else None,
        power_watts=after.power_watts if after is not None else None,
    )


def _name(tenant: ReferenceTenant) -> str:
    return tenant.process_name or UNNAMED


def _count(envelope: Envelope[tuple[int, ...]]) -> int | None:
    return None if envelope.value is None else len(envelope.value)


def _utc(at: datetime) -> datetime:
    return at.astimezone(UTC)
