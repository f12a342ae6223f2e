"""What one round of asking found, and the snapshot that is made of it: pure."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from mpswatch.documents import (
    DaemonLook,
    Disagreement,
    Envelope,
    GpuLook,
    PollSnapshot,
    Reason,
    SourceLook,
    State,
    SystemMemory,
    Tenant,
)
from mpswatch.errors import MpswatchError
from mpswatch.expectations import Expectations, counted
from mpswatch.identity import Known
from mpswatch.tenants import clients_known, foreign_unknown, key

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class DaemonAddress:
    """Where a control daemon is found. `log_directory` is for its logs, where they are readable."""

    name: str
    pipe_directory: Path
    log_directory: Path | None = None


@dataclass(frozen=True, slots=True)
class Gpus:
    """What the sources of GPU facts said: the first that answered, or why none did."""

    looks: tuple[GpuLook, ...] | None
    source: str
    at: datetime
    reason: Reason | None
    details: dict[str, str]
    sources: tuple[SourceLook, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """One round of asking everybody, joined."""

    daemons: tuple[tuple[DaemonLook, SourceLook], ...]
    gpus: Gpus
    proc: SourceLook
    tenants: tuple[Tenant, ...]
    disagreements: tuple[Disagreement, ...]
    expectations: Expectations
    identity_reason: Reason | None

    def all_answered(self) -> bool:
        """Whether nothing is missing."""
        return self.gpus.looks is not None and self.proc.success and all(look.success for _, look in self.daemons)

    def doubtful(self) -> set[object]:
        """What a look in mid-change gets wrong: whoever seems foreign or gone, and lists that disagree or are blind."""
        found: set[object] = {(key(t), t.kind) for t in self.tenants if t.kind in {"foreign", "unresolved"}}
        for disagreement in self.disagreements:
            found.update((pid, "client") for pid in disagreement.only_in_client_list)
            found.update((pid, "driver") for pid in disagreement.only_in_driver_list)
        blind = Reason.PROCESS_LIST_BLIND
        found.update((gpu.gpu.uuid, blind) for gpu in self.gpus.looks or () if gpu.processes.unknown_reason == blind)
        return found


def snapshot(
    look: Look,
    *,
    host: str,
    simulated: bool,
    started_at: datetime,
    finished_at: datetime,
    system_memory: SystemMemory | None = None,
) -> PollSnapshot:
    """The document of one look."""
    state: State = "simulated" if simulated else "measured"
    gpus = look.gpus
    looks = gpus.looks or ()
    unseen = foreign_unknown(looks, ())
    blind = next(iter(unseen.values())) if looks and len(unseen) == len(looks) else gpus.reason
    return PollSnapshot(
        host=host,
        started_at=started_at,
        finished_at=finished_at,
        simulated=simulated,
        daemons=tuple(daemon for daemon, _ in look.daemons),
        gpus=envelope(
            gpus.looks, state, source=gpus.source, at=gpus.at, evidence=dict(gpus.details), reason=gpus.reason
        ),
        tenants=envelope(
            None if blind else look.tenants,
            state,
            source=f"nvidia-cuda-mps-control, {gpus.source}, proc",
            at=gpus.at,
            evidence={"gpus_unknown": unseen} if unseen else {},
            reason=blind,
        ),
        disagreements=look.disagreements,
        sources=(*(source for _, source in look.daemons), *gpus.sources, look.proc),
        foreign_unknown=foreign_unknown(looks, look.tenants),
        expectations=counted(look.tenants, look.expectations, blind or _uncounted(look, unseen)),
        system_memory=system_memory,
    )


def identified(tenants: Sequence[Tenant], known: Mapping[int, Known], reason: Reason | None) -> tuple[Tenant, ...]:
    """`tenants` with their identities; `reason` is why there may be none. Our own clients need none."""
    return tuple(_identified(tenant, known.get(tenant.pid), reason) for tenant in tenants)


def _identified(tenant: Tenant, known: Known | None, reason: Reason | None) -> Tenant:
    if tenant.kind == "ours":
        return tenant
    if known is None or known.start_ticks != tenant.start_ticks:
        unknown = {**tenant.unknown, "identity": reason or tenant.unknown.get("start_ticks", Reason.PROCESS_GONE)}
        return msgspec.structs.replace(tenant, unknown=unknown)
    return msgspec.structs.replace(tenant, identity=known.identity)


def _uncounted(look: Look, unseen: Mapping[str, Reason]) -> Reason | None:
    """Why somebody who matches a pattern may not have been seen.

    A silent daemon is no such reason: whoever may be its client is unresolved, and that is counted. So a service that
    was started while the control daemon was down shows as escaped.
    """
    return next(iter(unseen.values()), look.identity_reason)


def remembered(look: Look, before: Sequence[Tenant]) -> tuple[Tenant, ...]:
    """The tenants seen, and those of the last look that this one could not have seen."""
    seen = {key(tenant) for tenant in look.tenants}
    gpus = {gpu.gpu.uuid for gpu in look.gpus.looks or () if gpu.processes.value is not None}
    daemons = {daemon.name for daemon, _ in look.daemons if clients_known(daemon)}
    unseen = tuple(
        tenant
        for tenant in before
        if key(tenant) not in seen
        and (tenant.daemon not in daemons if tenant.gpu_uuid is None else tenant.gpu_uuid not in gpus)
    )
    return look.tenants + unseen


def reason_of(error: Exception) -> Reason:
    return error.reason if isinstance(error, MpswatchError) else Reason.INTERNAL_ERROR


def failed(source: str, daemon: str, began: float, error: Exception) -> SourceLook:
    return SourceLook(
        source=source,
        daemon=daemon,
        success=False,
        duration_seconds=time.monotonic() - began,
        reason=reason_of(error),
        detail=error.detail if isinstance(error, MpswatchError) else repr(error),
    )


def daemon_unknown(address: DaemonAddress, source: SourceLook, at: datetime) -> DaemonLook:
    reason = source.reason or Reason.SOURCE_FAILED
    return DaemonLook(
        name=address.name,
        pipe_directory=str(address.pipe_directory),
        up=None,
        up_reason=reason,
        servers=envelope(
            None,
            "unknown",
            source="nvidia-cuda-mps-control",
            at=at,
            evidence={"detail": source.detail or ""},
            reason=reason,
        ),
        unknown=dict.fromkeys(("protocol", "default_active_thread_percentage", "our_session"), reason),
    )


def envelope(
    value: T | None, state: State, *, source: str, at: datetime, evidence: dict[str, object], reason: Reason | None
) -> Envelope[T]:
    return Envelope(
        value=value,
        state="unknown" if value is None else state,
        source=source,
        measured_at=at,
        evidence=evidence,
        unknown_reason=(reason or Reason.SOURCE_FAILED) if value is None else None,
    )
