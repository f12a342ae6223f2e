"""What every source of facts about GPUs promises, and what keeps sentinels and errors inside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from mpswatch.documents import Conditions, Envelope, GpuLook, GpuProcess, Reason, State
from mpswatch.errors import MpswatchError
from mpswatch.proc import PID_MAX

T = TypeVar("T")

CONDITIONS = (
    "sm_clock_mhz",
    "memory_clock_mhz",
    "power_watts",
    "temperature_celsius",
    "throttle_reasons",
    "utilization_ratio",
    "memory_used_bytes",
    "memory_free_bytes",
)
"""The fields of `Conditions` that hold a quantity."""


class GpuError(MpswatchError):
    """A source of facts about GPUs gave none."""


class GpuSource(Protocol):
    """One way of asking the driver. Both methods may take long, and raise `GpuError` and nothing else."""

    @property
    def name(self) -> str:
        """`nvml` or `nvidia-smi`."""

    def look(self) -> tuple[GpuLook, ...]:
        """Every GPU with its compute processes, in the driver's order."""

    def conditions(self, uuid: str) -> Conditions:
        """Clocks, power and so on of one GPU, now."""


@dataclass(slots=True)
class Readings:
    """Reads fields one by one: one that fails is None, with its reason in `unknown`, and the others stay."""

    reason_of: Callable[[Exception], Reason]
    unknown: dict[str, Reason] = field(default_factory=dict)

    def take(self, name: str, read: Callable[[], T]) -> T | None:
        """What `read` returns, or None with the reason noted under `name`."""
        try:
            return read()
        except Exception as error:  # noqa: BLE001 -- a vendor's library: whatever comes out of it stays here
            self.unknown[name] = self.reason_of(error)
            return None


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a driver's process list, with the MIG instance that tells two rows of one process apart."""

    pid: int
    used_memory_bytes: int | None
    memory_unknown_reason: Reason | None
    instance: tuple[object, object]
    mps_client: bool | None
    name: str | None


def now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


def merged(rows: Iterable[Row]) -> tuple[GpuProcess, ...]:
    """One entry a process, pids ascending. On MIG a process has a row an instance: its memory is their sum.

    Raises ValueError for a number that cannot be a pid: then no row of the list can be believed.
    """
    by_pid: dict[int, dict[tuple[object, object], Row]] = {}
    for row in rows:
        if not 0 < row.pid <= PID_MAX:
            raise ValueError(f"the driver lists pid {row.pid}, which is none")
        by_pid.setdefault(row.pid, {})[row.instance] = row
    return tuple(_one(list(by_pid[pid].values())) for pid in sorted(by_pid))


def _one(rows: Sequence[Row]) -> GpuProcess:
    if len(rows) == 1:
        row = rows[0]
        known = row.used_memory_bytes is not None
        return GpuProcess(
            pid=row.pid,
            used_memory_bytes=row.used_memory_bytes,
            memory_unknown_reason=None if known else row.memory_unknown_reason or Reason.NOT_SUPPORTED,
            mps_client=row.mps_client,
            name=row.name or None,
        )
    reasons = [row.memory_unknown_reason for row in rows if row.used_memory_bytes is None]
    return GpuProcess(
        pid=rows[0].pid,
        used_memory_bytes=None if reasons else sum(row.used_memory_bytes or 0 for row in rows),
        memory_unknown_reason=(reasons[0] or Reason.NOT_SUPPORTED) if reasons else None,
        mps_client=_any(row.mps_client for row in rows),
        name=next((row.name for row in rows if row.name), None),
    )


def _any(words: Iterable[bool | None]) -> bool | None:
    said = list(words)
    return True if True in said else None if None in said else False


def processes_known(
    value: tuple[GpuProcess, ...], *, source: str, state: State, evidence: dict[str, Any], blind: bool
) -> Envelope[tuple[GpuProcess, ...]]:
    """A process list as an envelope. From inside a pid namespace (`blind`) it says nothing.

    There it is empty, without an error; and where a driver does list somebody, its numbers are other processes here.
    """
    if blind:
        return processes_unknown(
            Reason.PID_NAMESPACE_BLIND,
            source=source,
            detail="the driver does not tell those outside the host's pid namespace who uses a GPU",
        )
    return Envelope(value=value, state=state, source=source, measured_at=now(), evidence=evidence, unknown_reason=None)


def processes_unknown(reason: Reason, *, source: str, detail: str) -> Envelope[tuple[GpuProcess, ...]]:
    """A process list that is not known."""
    return Envelope(
        value=None,
        state="unknown",
        source=source,
        measured_at=now(),
        evidence={"detail": detail},
        unknown_reason=reason,
    )


def conditions_unknown(reason: Reason, *, source: str) -> Conditions:
    """Conditions of which nothing is known."""
    return Conditions(measured_at=now(), source=source, unknown=dict.fromkeys(CONDITIONS, reason))
