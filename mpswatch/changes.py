"""What happened between two looks, as events for the journal. Only what both looks know is compared."""

from __future__ import annotations

from typing import Any

import msgspec

from mpswatch.documents import (
    DaemonLook,
    Envelope,
    Event,
    EventKind,
    GpuLook,
    PollSnapshot,
    Reason,
    ServerLook,
    Tenant,
    Waiting,
)

FAULT = "FAULT"
"""The state that the control program gives a server with a fatal error."""


def changes(previous: PollSnapshot | None, current: PollSnapshot) -> tuple[Event, ...]:
    """Tenants that came and went, servers that changed, daemons that went down or up, servers in fault.

    Nothing at the first look. A tenant on a GPU that could not be looked at has not left.
    """
    if previous is None:
        return ()
    before = {look.name: look for look in previous.daemons}
    events: list[Event] = []
    for look in current.daemons:
        if look.name in before:
            events += _of_daemon(before[look.name], look, current)
    events += _of_tenants(previous, current)
    return tuple(events)


def remember(memory: PollSnapshot | None, current: PollSnapshot) -> PollSnapshot:
    """`current`, with what it does not know filled in from `memory`: what the next look is to be compared with.

    So a server that was replaced while the daemon was silent still counts as changed. Never published.
    """
    if memory is None:
        return current
    before = {look.name: look for look in memory.daemons}
    daemons = tuple(
        msgspec.structs.replace(look, servers=before[look.name].servers)
        if look.servers.value is None and look.name in before
        else look
        for look in current.daemons
    )
    filled = msgspec.structs.replace(current, daemons=daemons, gpus=_filled(memory, current))
    if current.tenants.value is None:
        return msgspec.structs.replace(filled, tenants=memory.tenants)
    kept = {_key(tenant) for tenant in current.tenants.value}
    known = _Known(current)
    unseen = tuple(
        tenant for tenant in memory.tenants.value or () if _key(tenant) not in kept and not known.sees(tenant)
    )
    tenants = msgspec.structs.replace(current.tenants, value=current.tenants.value + unseen)
    return msgspec.structs.replace(filled, tenants=tenants)


def _filled(memory: PollSnapshot, current: PollSnapshot) -> Envelope[tuple[GpuLook, ...]]:
    """The GPUs of `current`, and for each whose processes it does not know the last look that did."""
    if current.gpus.value is None:
        return memory.gpus
    seen = {look.gpu.uuid for look in current.gpus.value if look.processes.value is not None}
    before = {look.gpu.uuid: look for look in memory.gpus.value or () if look.gpu.uuid not in seen}
    rest = tuple(look for look in current.gpus.value if look.gpu.uuid not in before)
    return msgspec.structs.replace(current.gpus, value=rest + tuple(before.values()))


class _Known:
    """Which tenants a look would have seen, if they were still there."""

    def __init__(self, snapshot: PollSnapshot) -> None:
        self._gpus = {look.gpu.uuid for look in snapshot.gpus.value or () if look.processes.value is not None}
        self._daemons = {
            look.name
            for look in snapshot.daemons
            if look.servers.value is not None and all(server.clients is not None for server in look.servers.value)
        }

    def sees(self, tenant: Tenant) -> bool:
        return tenant.daemon in self._daemons if tenant.gpu_uuid is None else tenant.gpu_uuid in self._gpus


def _key(tenant: Tenant) -> tuple[int, int | None, str | None]:
    return (tenant.pid, tenant.start_ticks, tenant.gpu_uuid)


def _of_daemon(before: DaemonLook, now: DaemonLook, snapshot: PollSnapshot) -> list[Event]:
    events = _of_waiting(before, now, snapshot)
    if before.up is True and now.up is not True:
        what = "is gone" if now.up is False else "cannot be asked"
        message = f"the control daemon {now.name} {what}: {now.up_reason or Reason.SOURCE_FAILED}"
        events.append(_event("daemon_down", snapshot, message, daemon=now.name, reason=now.up_reason))
    if before.up is not True and now.up is True:
        events.append(_event("daemon_up", snapshot, f"the control daemon {now.name} answers", daemon=now.name))
    if before.servers.value is None or now.servers.value is None:
        return events
    old = {_same_server(server): server for server in before.servers.value}
    new = {_same_server(server): server for server in now.servers.value}
    if not _equal(before.servers.value, now.servers.value):
        message = f"the servers of {now.name} changed from {_pids(old.values())} to {_pids(new.values())}"
        details: dict[str, Any] = {
            "before": [_brief(server) for server in old.values()],
            "after": [_brief(s) for s in new.values()],
        }
        events.append(_event("server_changed", snapshot, message, daemon=now.name, details=details))
    for server in now.servers.value:
        earlier = old.get(_same_server(server))
        if server.server_state == FAULT and (earlier is None or earlier.server_state != FAULT):
            message = f"server {server.pid} of {now.name} is in fault"
            details = {"server": _brief(server)}
            events.append(
                _event("server_fault", snapshot, message, daemon=now.name, reason=Reason.SERVER_FAULT, details=details)
            )
    return events


def _of_waiting(before: DaemonLook, now: DaemonLook, snapshot: PollSnapshot) -> list[Event]:
    """Somebody of another uid began to wait, or the server began to be shut down for one."""
    earlier, waiting = before.waiting or Waiting(), now.waiting
    if waiting is None:
        return []
    come = [client for client in waiting.clients if client not in earlier.clients]
    if not come and not (waiting.shutdown_armed and not earlier.shutdown_armed):
        return []
    who = ", ".join(f"pid {client.pid} of uid {client.uid}" for client in come) or "a client of another uid"
    message = f"{who} waits for the server of {now.name} to be shut down: it will be, at its first idle moment"
    details = {
        "clients": [{"pid": client.pid, "uid": client.uid} for client in waiting.clients],
        "shutdown_armed": waiting.shutdown_armed,
    }
    reason = Reason.FOREIGN_CLIENT_WAITING
    return [_event("client_waiting", snapshot, message, daemon=now.name, reason=reason, details=details)]


def _same_server(server: ServerLook) -> tuple[int, int | None]:
    return (server.pid, server.start_ticks)


def _equal(before: tuple[ServerLook, ...], now: tuple[ServerLook, ...]) -> bool:
    """The same servers. Start ticks that one of the looks does not know (a vanishing server) prove no change."""
    old = {server.pid: server.start_ticks for server in before}
    new = {server.pid: server.start_ticks for server in now}
    return old.keys() == new.keys() and all(None in {old[pid], new[pid]} or old[pid] == new[pid] for pid in old)


def _pids(servers: Any) -> str:  # noqa: ANN401 - any iterable of servers
    return ", ".join(str(server.pid) for server in servers) or "none"


def _brief(server: ServerLook) -> dict[str, Any]:
    return {"pid": server.pid, "start_ticks": server.start_ticks, "uid": server.uid, "multi_user": server.multi_user}


def _of_tenants(previous: PollSnapshot, current: PollSnapshot) -> list[Event]:
    if previous.tenants.value is None or current.tenants.value is None:
        return []
    old = {_key(tenant): tenant for tenant in previous.tenants.value}
    new = {_key(tenant): tenant for tenant in current.tenants.value}
    could_see_before, sees_now = _Known(previous), _Known(current)
    # A client is on the list before its first context puts it on a GPU: the same tenant, under a fuller key.
    joined = {(tenant.pid, tenant.start_ticks) for tenant in old.values() if tenant.gpu_uuid is None}
    on_a_gpu = {(tenant.pid, tenant.start_ticks) for tenant in new.values() if tenant.gpu_uuid is not None}
    events = []
    for place, tenant in new.items():
        fresh = place not in old and place[:2] not in joined and could_see_before.sees(tenant)
        if fresh and tenant.kind not in {"ours", "server"}:
            events.append(_tenant_event("tenant_appeared", "appeared", tenant, current))
        if _escaped(tenant) and not _escaped(old.get(place)):
            events.append(_tenant_event("service_escaped", "runs outside MPS and was expected inside", tenant, current))
    for place, tenant in old.items():
        left = place not in new and sees_now.sees(tenant)
        moved = tenant.gpu_uuid is None and place[:2] in on_a_gpu
        if left and not moved and tenant.kind not in {"ours", "server"}:
            events.append(_tenant_event("tenant_left", "left", tenant, current))
    return events


def _escaped(tenant: Tenant | None) -> bool:
    return tenant is not None and tenant.kind == "foreign" and bool(tenant.expectations)


def _tenant_event(kind: EventKind, verb: str, tenant: Tenant, snapshot: PollSnapshot) -> Event:
    memory = "memory unknown" if tenant.used_memory_bytes is None else f"{tenant.used_memory_bytes >> 20} MiB"
    name = tenant.process_name or "name unknown"
    message = f"{tenant.kind} tenant {verb}: pid {tenant.pid}, {name}, {memory}{_whose(tenant)}"
    details: dict[str, Any] = {
        "pid": tenant.pid,
        "start_ticks": tenant.start_ticks,
        "kind": tenant.kind,
        "process_name": tenant.process_name,
        "used_memory_bytes": tenant.used_memory_bytes,
        "uid": tenant.uid,
    }
    if tenant.identity is not None:
        details["identity"] = msgspec.to_builtins(tenant.identity)
    if tenant.expectations:
        details["expectations"] = list(tenant.expectations)
    if tenant.welcome is not None:
        details["welcome"] = tenant.welcome
    return _event(kind, snapshot, message, daemon=tenant.daemon, gpu_uuid=tenant.gpu_uuid, details=details)


def _whose(tenant: Tenant) -> str:
    """Where it runs, in a few words; never the user or the command line, which are not for everybody."""
    who = tenant.identity
    if who is None:
        return ""
    words = [
        f"pod {who.pod_namespace}/{who.pod_name}" if who.pod_name else f"pod {who.pod_uid}" if who.pod_uid else "",
        f"container {who.container_name or (who.container_id or '')[:12]}" if who.container_id else "",
        f"unit {who.unit}" if who.unit and not who.container_id else "",
        f"Slurm job {who.slurm_job}" if who.slurm_job else "",
        f"expected as {', '.join(tenant.expectations)}" if tenant.expectations else "",
        f"welcome as {tenant.welcome}" if tenant.welcome else "",
    ]
    return "".join(f", {word}" for word in words if word)


def _event(
    kind: EventKind,
    snapshot: PollSnapshot,
    message: str,
    *,
    daemon: str | None,
    gpu_uuid: str | None = None,
    reason: Reason | None = None,
    details: dict[str, Any] | None = None,
) -> Event:
    return Event(
        kind=kind,
        at=snapshot.finished_at,
        host=snapshot.host,
        message=message,
        simulated=snapshot.simulated,
        daemon=daemon,
        gpu_uuid=gpu_uuid,
        reason=reason,
        details=details or {},
    )
