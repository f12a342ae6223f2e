"""Metrics about who is on the GPU: sums over what is known, absent where nothing is, 0 only where nobody is there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from mpswatch.documents import DaemonLook, GpuLook, PollSnapshot, Tenant
from mpswatch.latest import View
from mpswatch.metrics.sheet import Options, Sheet

OTHER = "other"

OF_A_DAEMON = ("managed_clients", "own_clients")
OF_BOTH = ("managed_memory_bytes", "managed_memory_unknown_clients", "client_list_disagreements")
OF_FOREIGN = (
    "foreign_tenants",
    "foreign_memory_bytes",
    "foreign_memory_unknown_tenants",
    "welcome_tenants",
    "welcome_memory_bytes",
)
OF_A_GPU = (*OF_FOREIGN, "unresolved_tenants")


def tenants(view: View, sheet: Sheet, options: Options) -> None:
    poll = view.poll
    looks = {look.name: look for look in poll.daemons} if poll is not None else {}
    if poll is None or poll.tenants.value is None:
        reason = view.poll_unknown if poll is None else poll.tenants.unknown_reason
        for daemon in view.daemons:
            for name in OF_BOTH:
                sheet.unknown(name, reason, daemon=daemon)
            _listed_clients(daemon, looks.get(daemon), reason, sheet)
        for name in OF_A_GPU:
            sheet.unknown(name, reason)
        return
    found = poll.tenants.value
    for daemon in view.daemons:
        silent = clients_unknown(looks[daemon]) if daemon in looks else "no_poll_yet"
        _of_a_daemon(daemon, silent, poll, found, sheet)
    _of_gpus(poll, found, sheet, options)
    _disagreements(view, looks, poll, sheet)


def _listed_clients(daemon: str, look: DaemonLook | None, reason: str | None, sheet: Sheet) -> None:
    """Count a daemon's clients by its own list while GPUs are unknown: right as long as none is ours."""
    silent = reason if look is None else clients_unknown(look)
    if look is None or silent is not None or look.our_session is not None:
        for name in OF_A_DAEMON:
            sheet.unknown(name, silent or reason, daemon=daemon)
        return
    clients = {pid for server in look.servers.value or () for pid in server.clients or ()}
    sheet.put("managed_clients", len(clients), daemon)
    sheet.put("own_clients", 0, daemon)


def clients_unknown(look: DaemonLook) -> str | None:
    """Say why it is unknown which clients of a daemon are managed: its list, or which of them are ours."""
    silent = list_unknown(look)
    if silent is None and any(server.clients for server in look.servers.value or ()):
        return look.unknown.get("our_session")
    return silent


def list_unknown(look: DaemonLook) -> str | None:
    """Say why a daemon's client list is unknown, or None where it is known."""
    if look.servers.value is None:
        return look.servers.unknown_reason or "not_recorded"
    for server in look.servers.value:
        if server.clients is None:
            return server.unknown.get("clients", "not_recorded")
    return None


def processes_unknown(look: GpuLook) -> str | None:
    """Say why a GPU's list of processes is unknown, or None where it is known."""
    return None if look.processes.value is not None else look.processes.unknown_reason or "not_recorded"


def _of_a_daemon(daemon: str, silent: str | None, poll: PollSnapshot, found: Sequence[Tenant], sheet: Sheet) -> None:
    if silent is not None:
        for name in (*OF_A_DAEMON, *OF_BOTH[:2]):
            sheet.unknown(name, silent, daemon=daemon)
        return
    mine = [tenant for tenant in found if tenant.daemon == daemon]
    managed = [tenant for tenant in mine if tenant.kind == "managed"]
    sheet.put("managed_clients", _processes(managed), daemon)
    sheet.put("own_clients", _processes([tenant for tenant in mine if tenant.kind == "ours"]), daemon)
    unplaced = [tenant for tenant in managed if tenant.gpu_uuid is None]
    if unplaced:
        sheet.put("managed_memory_unknown_clients", len(unplaced), daemon, "")
    if poll.gpus.value is None:
        for name in OF_BOTH[:2]:
            sheet.unknown(name, poll.gpus.unknown_reason, daemon=daemon)
        return
    for look in poll.gpus.value:
        uuid = look.gpu.uuid
        hidden = processes_unknown(look)
        if hidden is not None:
            for name in OF_BOTH[:2]:
                sheet.unknown(name, hidden, daemon=daemon, uuid=uuid)
            continue
        here = [tenant for tenant in managed if tenant.gpu_uuid == uuid]
        total, missing, reason = memory(here)
        if total is None and not here:
            # Nobody of this daemon is seen here; but a client that is on no known GPU may be.
            total, reason = (None, unplaced[0].unknown.get("gpu_uuid")) if unplaced else (0, None)
        sheet.put_or_unknown("managed_memory_bytes", total, reason, daemon, uuid, daemon=daemon, uuid=uuid)
        sheet.put("managed_memory_unknown_clients", missing, daemon, uuid)


def _of_gpus(poll: PollSnapshot, found: Sequence[Tenant], sheet: Sheet, options: Options) -> None:
    if poll.gpus.value is None:
        for name in OF_A_GPU:
            sheet.unknown(name, poll.gpus.unknown_reason)
        return
    by_gpu: dict[str, list[Tenant]] = defaultdict(list)
    for tenant in found:
        by_gpu[tenant.gpu_uuid or ""].append(tenant)
    if unplaced := _processes([tenant for tenant in by_gpu[""] if tenant.kind == "unresolved"]):
        sheet.put("unresolved_tenants", unplaced, "")
    for look in poll.gpus.value:
        uuid = look.gpu.uuid
        hidden = processes_unknown(look)
        if hidden is not None:
            for name in OF_A_GPU:
                sheet.unknown(name, hidden, uuid=uuid)
            continue
        here = by_gpu[uuid]
        sheet.put("unresolved_tenants", _processes([tenant for tenant in here if tenant.kind == "unresolved"]), uuid)
        if options.pid_labels:
            for tenant in here:
                labels = (tenant.daemon or "", uuid, tenant.kind, tenant.process_name or "", str(tenant.pid))
                sheet.put("tenant_memory_bytes", tenant.used_memory_bytes, *labels)
        if uuid in poll.foreign_unknown:
            # Somebody here may be managed or foreign: a count without them would say too little.
            for name in OF_FOREIGN:
                sheet.unknown(name, poll.foreign_unknown[uuid], uuid=uuid)
        else:
            strangers = [tenant for tenant in here if tenant.kind == "foreign"]
            _foreign(uuid, [tenant for tenant in strangers if tenant.welcome is None], sheet, options)
            _welcome(uuid, [tenant for tenant in strangers if tenant.welcome is not None], sheet)


def _foreign(uuid: str, foreign: Sequence[Tenant], sheet: Sheet, options: Options) -> None:
    total, missing, reason = memory(foreign)
    sheet.put("foreign_tenants", _processes(foreign), uuid)
    sheet.put_or_unknown("foreign_memory_bytes", total if foreign else 0, reason, uuid, uuid=uuid)
    sheet.put("foreign_memory_unknown_tenants", missing, uuid)
    for name, amount in largest(foreign, options.tenant_names).items():
        sheet.put("foreign_tenant_memory_bytes", amount, uuid, name)


def _welcome(uuid: str, welcome: Sequence[Tenant], sheet: Sheet) -> None:
    total, _, reason = memory(welcome)
    sheet.put("welcome_tenants", _processes(welcome), uuid)
    sheet.put_or_unknown("welcome_memory_bytes", total if welcome else 0, reason, uuid, uuid=uuid)


def _disagreements(view: View, looks: dict[str, DaemonLook], poll: PollSnapshot, sheet: Sheet) -> None:
    name = OF_BOTH[2]
    if poll.gpus.value is None:
        for daemon in view.daemons:
            sheet.unknown(name, poll.gpus.unknown_reason, daemon=daemon)
        return
    unknown_for_daemon = {
        daemon: list_unknown(looks[daemon]) if daemon in looks else "no_poll_yet" for daemon in view.daemons
    }
    for look in poll.gpus.value:
        hidden = processes_unknown(look)
        if hidden is None and any(process.mps_client is None for process in look.processes.value or ()):
            hidden = "not_supported"
        for daemon, silent in unknown_for_daemon.items():
            reason = hidden or silent
            value = 0 if reason is None else None
            sheet.put_or_unknown(name, value, reason, daemon, look.gpu.uuid, daemon=daemon, uuid=look.gpu.uuid)
    for found in poll.disagreements:
        differing = len(found.only_in_client_list) + len(found.only_in_driver_list)
        sheet.add(name, differing, found.daemon or "", found.gpu_uuid or "")


def memory(found: Sequence[Tenant]) -> tuple[int | None, int, str | None]:
    """Sum the memory that is known: (bytes, or None if none is known; how many are missing; a reason)."""
    known = [tenant.used_memory_bytes for tenant in found if tenant.used_memory_bytes is not None]
    missing = [tenant for tenant in found if tenant.used_memory_bytes is None]
    reason = missing[0].unknown.get("used_memory_bytes") if missing else None
    return (sum(known) if known else None), len(missing), reason


def largest(found: Sequence[Tenant], number: int) -> dict[str, int]:
    """Sum known memory by process name; beyond the largest `number` names all goes to `other`."""
    by_name: dict[str, int] = defaultdict(int)
    for tenant in found:
        if tenant.used_memory_bytes is not None:
            by_name[tenant.process_name or ""] += tenant.used_memory_bytes
    ranked = sorted(by_name.items(), key=lambda item: (-item[1], item[0]))
    named: dict[str, int] = dict(ranked[:number])
    rest = sum(amount for _, amount in ranked[number:])
    if len(ranked) > number:
        named[OTHER] = named.get(OTHER, 0) + rest
    return named


def _processes(found: Sequence[Tenant]) -> int:
    """Count processes, not rows: one that is on several GPUs is one."""
    return len({(tenant.pid, tenant.start_ticks) for tenant in found})
