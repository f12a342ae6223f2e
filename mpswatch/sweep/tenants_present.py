"""The foreign tenants of one GPU, as the reference document writes them."""

from __future__ import annotations

from mpswatch.documents import PollSnapshot, Reason, ReferenceTenant, Tenant


def foreign_tenants(snapshot: PollSnapshot, gpu_uuid: str) -> tuple[ReferenceTenant, ...] | Reason:
    """Who was on the GPU outside MPS, by pid; or why that is not known. Memory is MiB, rounded down."""
    tenants = snapshot.tenants.value
    if tenants is None:
        try:
            return Reason(snapshot.tenants.unknown_reason or "")
        except ValueError:
            return Reason.SOURCE_FAILED
    if gpu_uuid in snapshot.foreign_unknown:
        return snapshot.foreign_unknown[gpu_uuid]
    foreign = [tenant for tenant in tenants if tenant.kind == "foreign" and tenant.gpu_uuid == gpu_uuid]
    return tuple(_reference(tenant) for tenant in sorted(foreign, key=lambda tenant: tenant.pid))


def unresolved_tenants(snapshot: PollSnapshot, gpu_uuid: str) -> int | None:
    """How many processes on the GPU could not be told apart; None where none were seen at all."""
    if snapshot.tenants.value is None:
        return None
    return sum(tenant.kind == "unresolved" and tenant.gpu_uuid == gpu_uuid for tenant in snapshot.tenants.value)


def _reference(tenant: Tenant) -> ReferenceTenant:
    unknown = dict(tenant.unknown)
    memory = tenant.used_memory_bytes
    if memory is None:
        unknown["used_memory_mb"] = unknown.pop("used_memory_bytes", Reason.NOT_SUPPORTED)
    if tenant.process_name is None:
        unknown.setdefault("process_name", Reason.PROCESS_GONE)
    return ReferenceTenant(
        pid=tenant.pid,
        used_memory_mb=None if memory is None else memory >> 20,
        process_name=tenant.process_name,
        gpu_uuid=tenant.gpu_uuid,
        start_ticks=tenant.start_ticks,
        uid=tenant.uid,
        unknown={key: reason for key, reason in unknown.items() if key in ReferenceTenant.__struct_fields__},
    )
