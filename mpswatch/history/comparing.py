"""What changed between two runs: circumstances first, then numbers, and whether the numbers may be compared at all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from mpswatch.documents import Cell, Conditions, Quantity, ReferenceTenant, SweepDocument
from mpswatch.evidence.quantities import quantities_of
from mpswatch.history.facts import Amount, Series, amounts_of, series_of

_NAMES = {
    "host": "host",
    "daemon": "control daemon",
    "gpu_uuid": "GPU",
    "plan": "plan",
    "op": "operation",
    "dtype": "dtype",
    "size": "matrix size",
    "iters": "iterations",
    "backend": "client backend",
    "client_runtime": "client runtime",
    "simulated": "simulated",
}


class Difference(NamedTuple):
    """One thing that is not the same: as text, `unknown` where a run does not say."""

    what: str
    first: str
    second: str


class CapChange(NamedTuple):
    """One quantity of one cap in both runs: its amount, or why there is none.

    `ratio` (second over first, minus 1) only between two numbers of comparable runs. `apart` says whether the runs' own
    intervals exclude each other; None where one has no interval.
    """

    cap: str
    quantity: Quantity
    first: Amount | str
    second: Amount | str
    ratio: float | None
    apart: bool | None
    conditions: tuple[Difference, ...]


class Comparison(NamedTuple):
    """Two runs side by side. `not_comparable` names what of their series differs: then no ratio is formed."""

    not_comparable: tuple[Difference, ...]
    circumstances: tuple[Difference, ...]
    caps: tuple[CapChange, ...]


def compare(first: SweepDocument, second: SweepDocument) -> Comparison:
    """Compare two runs as they are; nothing is averaged."""
    one, two = series_of(first), series_of(second)
    crossing = tuple(
        Difference(_NAMES[field], _text(mine), _text(theirs))
        for field, mine, theirs in zip(Series._fields, one, two, strict=True)
        if mine != theirs
    )
    cells = [{cell.cap: cell for cell in document.cells} for document in (first, second)]
    caps = dict.fromkeys(cell.cap for document in (first, second) for cell in document.cells)
    quantities = _quantities(first, second)
    return Comparison(
        not_comparable=crossing,
        circumstances=tuple(_circumstances(first, second)),
        caps=tuple(
            change
            for cap in caps
            for change in _changes(quantities, cap, cells[0].get(cap), cells[1].get(cap), comparable=not crossing)
        ),
    )


def _circumstances(first: SweepDocument, second: SweepDocument) -> Iterable[Difference]:
    for what, mine, theirs in zip(_LABELS, _facts(first), _facts(second), strict=True):
        if mine != theirs:
            yield Difference(what, mine, theirs)
    keys = sorted({*(first.client_facts or {}), *(second.client_facts or {})})
    for key in keys:
        before, after = ((document.client_facts or {}).get(key) for document in (first, second))
        if before != after and key not in {"pid", "session", "import_seconds", "lock"}:
            yield Difference(f"client: {key}", _text(before), _text(after))
    yield from _environments(first, second)


_LABELS = (
    "mpswatch",
    "GPU model",
    "driver",
    "SMs of the GPU",
    "MPS server",
    "server's uid",
    "multi-user server",
    "default active thread percentage",
    "managed clients before",
    "foreign tenants",
    "outcome",
)


def _facts(document: SweepDocument) -> tuple[str, ...]:
    gpu, mps = document.gpu, document.mps
    server = None
    if mps is not None and mps.server_pid is not None:
        server = f"pid {mps.server_pid}, started at tick {_text(mps.server_start_ticks)}"
    managed, foreign = document.managed_clients_before, document.unmanaged_tenants
    return (
        _text(document.mpswatch_version),
        _text(gpu.name if gpu else None),
        _text(gpu.driver_version if gpu else None),
        _text(gpu.sm_count if gpu else None),
        _text(server),
        _text(mps.server_uid if mps else None),
        _text(mps.multi_user if mps else None),
        _text(mps.default_active_thread_percentage if mps else None),
        f"unknown: {managed.unknown_reason}" if managed.value is None else str(len(managed.value)),
        f"unknown: {foreign.unknown_reason}" if foreign.value is None else _tenants(foreign.value),
        "complete" if document.complete_sweep else f"partial: {document.partial_run_note}",
    )


def _tenants(tenants: tuple[ReferenceTenant, ...]) -> str:
    named = sorted(f"{tenant.process_name or '(unnamed)'} {_memory(tenant)}" for tenant in tenants)
    return "; ".join(named) or "none"


def _memory(tenant: ReferenceTenant) -> str:
    return "memory unknown" if tenant.used_memory_mb is None else f"{tenant.used_memory_mb} MiB"


def _environments(first: SweepDocument, second: SweepDocument) -> Iterable[Difference]:
    """Variables of the client that differ; the cap's own, which differs from cell to cell, is not one of them."""
    one, two = _environment(first), _environment(second)
    for key in sorted({*one, *two}):
        if one.get(key) != two.get(key):
            yield Difference(f"environment: {key}", _text(one.get(key)), _text(two.get(key)))


def _environment(document: SweepDocument) -> dict[str, str]:
    found: dict[str, str] = {}
    for cell in document.cells:
        found.update(cell.environment or {})
    return {key: value for key, value in found.items() if key != "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"}


def _quantities(first: SweepDocument, second: SweepDocument) -> tuple[Quantity, ...]:
    """What both can show: beside a run of plan quick, the burst of a thorough one is its own single pass."""
    one, two = quantities_of(first), quantities_of(second)
    return one if one == two else ("tflops", "sustained")


def _changes(
    quantities: Iterable[Quantity], cap: str, first: Cell | None, second: Cell | None, *, comparable: bool
) -> Iterable[CapChange]:
    one, two = (amounts_of(cell) if cell is not None else {} for cell in (first, second))
    conditions = tuple(_conditions(first, second))
    for quantity in quantities:
        mine, theirs = one.get(quantity, _missing(first)), two.get(quantity, _missing(second))
        ratio = apart = None
        if comparable and isinstance(mine, Amount) and isinstance(theirs, Amount) and mine.tflops > 0:
            ratio = theirs.tflops / mine.tflops - 1
            apart = _apart(mine, theirs)
        yield CapChange(cap, quantity, mine, theirs, ratio, apart, conditions)
        conditions = ()


def _apart(one: Amount, two: Amount) -> bool | None:
    if one.low is None or one.high is None or two.low is None or two.high is None:
        return None
    return one.high < two.low or two.high < one.low


def _missing(cell: Cell | None) -> str:
    if cell is None:
        return "not in this run"
    return f"unknown: {cell.unknown_reason}" if cell.unknown_reason is not None else "not measured"


def _conditions(first: Cell | None, second: Cell | None) -> Iterable[Difference]:
    """Clocks, power and the like after the cell, and what the client saw: only what differs.

    Each figure's own clock and power are in its `Amount`.
    """
    if first is None or second is None:
        return
    pairs: list[tuple[str, object, object]] = [
        ("SMs seen", first.sm_count, second.sm_count),
        ("managed", first.self_was_managed, second.self_was_managed),
        ("verdict", _verdict(first), _verdict(second)),
        *_after(first.conditions_after, second.conditions_after),
    ]
    for what, mine, theirs in pairs:
        if mine != theirs:
            yield Difference(what, _text(mine), _text(theirs))


def _verdict(cell: Cell) -> str | None:
    return cell.verdict.verdict if cell.verdict is not None else None


def _after(first: Conditions | None, second: Conditions | None) -> Iterable[tuple[str, object, object]]:
    for what, field in (
        ("SM clock after it, MHz", "sm_clock_mhz"),
        ("memory clock after it, MHz", "memory_clock_mhz"),
        ("power after it, W", "power_watts"),
        ("temperature after it, °C", "temperature_celsius"),
        ("throttle reasons after it", "throttle_reasons"),
    ):
        yield what, getattr(first, field, None), getattr(second, field, None)


def _text(value: object) -> str:
    if value is None or value == "":
        return "unknown"
    if isinstance(value, (tuple, list)):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
