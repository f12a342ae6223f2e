"""Metrics from the newest poll: GPUs, control daemons and their servers."""

from __future__ import annotations

from collections.abc import Sequence

from mpswatch.documents import DaemonLook, GpuLook, ServerLook
from mpswatch.latest import View
from mpswatch.metrics.sheet import Options, Sheet

SERVER_STATES = ("initializing", "active", "fault", "ready")
"""The words of get_server_status, and protocol 3's; any other is published as `other`, no server at all as `none`."""

COMPUTE_MODES = ("default", "exclusive_process", "prohibited")
"""The driver's words; another one (exclusive_thread is no longer made) is published as `other`."""

OF_SERVERS = (
    "mps_server_info",
    "mps_server_state",
    "mps_contexts_used",
    "mps_contexts_limit",
    "mps_server_active_thread_ratio",
    "mps_server_pinned_memory_limit_bytes",
)
OF_A_LOG = ("mps_waiting_clients", "mps_server_shutdown_armed")
DEFAULTS = ("mps_default_active_thread_ratio", "mps_default_pinned_memory_limit_bytes")
OF_A_DAEMON = ("mps_up", *OF_SERVERS, *OF_A_LOG, *DEFAULTS)
OF_A_GPU = ("gpu_info", "mig_device_info", "gpu_memory_total_bytes", "gpu_memory_used_bytes", "gpu_compute_mode")


def gpus(view: View, sheet: Sheet, options: Options) -> None:  # noqa: ARG001  # every builder is called alike
    memory = view.poll.system_memory if view.poll is not None else None
    unread = view.poll_unknown if view.poll is None else None
    for name, amount in (
        ("system_memory_total_bytes", memory.total_bytes if memory else None),
        ("system_memory_available_bytes", memory.available_bytes if memory else None),
    ):
        sheet.put_or_unknown(name, amount, unread)
    if view.poll is None or view.poll.gpus.value is None:
        reason = view.poll_unknown if view.poll is None else view.poll.gpus.unknown_reason
        for name in OF_A_GPU:
            sheet.unknown(name, reason)
        return
    for look in view.poll.gpus.value:
        _gpu(look, sheet)


def _gpu(look: GpuLook, sheet: Sheet) -> None:
    gpu, now = look.gpu, look.conditions
    sheet.put("gpu_info", 1, gpu.uuid, str(gpu.index), gpu.name, gpu.driver_version or "")
    sheet.put_or_unknown(
        "gpu_memory_total_bytes",
        gpu.memory_total_bytes,
        gpu.unknown.get("memory_total_bytes"),
        gpu.uuid,
        uuid=gpu.uuid,
    )
    sheet.put_or_unknown(
        "gpu_memory_used_bytes", now.memory_used_bytes, now.unknown.get("memory_used_bytes"), gpu.uuid, uuid=gpu.uuid
    )
    for device in gpu.mig_devices or ():
        labels = (gpu.uuid, str(device.index), device.uuid or "", device.profile or "")
        sheet.put("mig_device_info", 1, *labels)
    if gpu.mig_devices is None:
        sheet.unknown("mig_device_info", gpu.unknown.get("mig_devices"), uuid=gpu.uuid)
    if gpu.compute_mode is None:
        sheet.unknown("gpu_compute_mode", gpu.unknown.get("compute_mode"), uuid=gpu.uuid)
        return
    mode = gpu.compute_mode if gpu.compute_mode in COMPUTE_MODES else "other"
    for word in (*COMPUTE_MODES, "other"):
        sheet.put("gpu_compute_mode", int(word == mode), gpu.uuid, word)


def mps(view: View, sheet: Sheet, options: Options) -> None:  # noqa: ARG001  # every builder is called alike
    looks = {look.name: look for look in view.poll.daemons} if view.poll is not None else {}
    for daemon in view.daemons:
        if daemon in looks:
            _daemon(looks[daemon], sheet, view.context_limit)
        else:
            for name in OF_A_DAEMON:
                sheet.unknown(name, view.poll_unknown or "no_poll_yet", daemon=daemon)
    for daemon in sorted({*view.daemons, *view.server_changes}):
        sheet.put("mps_server_changes_total", view.server_changes.get(daemon, 0), daemon)
    for daemon in view.daemons:
        unread = view.fault_logs.get(daemon, "not_recorded")
        faults = view.gpu_faults.get(daemon, 0) if unread is None else None
        sheet.put_or_unknown("gpu_faults_total", faults, unread, daemon, daemon=daemon)


def _daemon(look: DaemonLook, sheet: Sheet, context_limit: int | None) -> None:
    up = None if look.up is None else int(look.up)
    sheet.put_or_unknown("mps_up", up, look.up_reason, look.name, daemon=look.name)
    share = look.default_active_thread_percentage
    reason = look.unknown.get("default_active_thread_percentage")
    ratio = None if share is None else share / 100
    sheet.put_or_unknown("mps_default_active_thread_ratio", ratio, reason, look.name, daemon=look.name)
    if "default_memory_limits" in look.unknown:  # of some GPUs only, where it is ambiguous
        sheet.unknown("mps_default_pinned_memory_limit_bytes", look.unknown["default_memory_limits"], daemon=look.name)
    for uuid, limit in (look.default_memory_limits or {}).items():
        sheet.put("mps_default_pinned_memory_limit_bytes", limit, look.name, uuid)
    waiting, unread = look.waiting, look.unknown.get("waiting")
    queued = None if waiting is None else len(waiting.clients)
    armed = None if waiting is None else int(waiting.shutdown_armed)
    sheet.put_or_unknown("mps_waiting_clients", queued, unread, look.name, daemon=look.name)
    sheet.put_or_unknown("mps_server_shutdown_armed", armed, unread, look.name, daemon=look.name)
    servers = look.servers.value
    if servers is None:
        for name in OF_SERVERS:
            sheet.unknown(name, look.servers.unknown_reason, daemon=look.name)
        return
    for server in servers:
        uid = "" if server.uid is None else str(server.uid)
        multi_user = "" if server.multi_user is None else str(server.multi_user).lower()
        sheet.put("mps_server_info", 1, look.name, uid, multi_user, look.protocol or "")
    _server_state(look, sheet)
    _contexts(look, sheet, context_limit)
    _limits(look, sheet)


def _server_state(look: DaemonLook, sheet: Sheet) -> None:
    servers = look.servers.value or ()
    silent = next((server for server in servers if server.server_state is None), None)
    if silent is not None:
        sheet.unknown("mps_server_state", silent.unknown.get("server_state"), daemon=look.name)
        return
    words = {(server.server_state or "").lower() for server in servers} or {"none"}
    current = {word if word in (*SERVER_STATES, "none") else "other" for word in words}
    for state in (*SERVER_STATES, "none", "other"):
        sheet.put("mps_server_state", int(state in current), look.name, state)


def _limits(look: DaemonLook, sheet: Sheet) -> None:
    """The lowest of the servers', of which there is one at a time. A memory limit that is not set is no series."""
    servers = look.servers.value or ()
    ratio, memory = "mps_server_active_thread_ratio", "mps_server_pinned_memory_limit_bytes"
    if not servers:
        sheet.unknown(ratio, "no_server", daemon=look.name)
        sheet.unknown(memory, "no_server", daemon=look.name)
    percentages = [server.active_thread_percentage for server in servers]
    if None in percentages:
        sheet.unknown(ratio, _first_reason(servers, "active_thread_percentage"), daemon=look.name)
    elif percentages:
        sheet.put(ratio, min(share for share in percentages if share is not None) / 100, look.name)
    limits = [server.memory_limits for server in servers]
    if None in limits:
        sheet.unknown(memory, _first_reason(servers, "memory_limits"), daemon=look.name)
        return
    set_for = [(uuid, limit) for by_gpu in limits for uuid, limit in (by_gpu or {}).items() if limit is not None]
    for uuid in dict(set_for):
        sheet.put(memory, min(limit for gpu, limit in set_for if gpu == uuid), look.name, uuid)


def _first_reason(servers: Sequence[ServerLook], field: str) -> str | None:
    return next((server.unknown[field] for server in servers if field in server.unknown), None)


def _contexts(look: DaemonLook, sheet: Sheet, configured: int | None) -> None:
    """Sum over the servers (there is one at a time, two for a moment), unless one of them did not say.

    No command of protocol 2 tells the limit: then it is the `configured` one, which the sweeps' preflight goes by too.
    """
    servers = look.servers.value or ()
    silent = next((server for server in servers if server.contexts is None), None)
    if silent is not None:
        sheet.unknown("mps_contexts_used", silent.unknown.get("contexts"), daemon=look.name)
    else:
        sheet.put("mps_contexts_used", sum(len(server.contexts or ()) for server in servers), look.name)
    limits = [configured if server.context_limit is None else server.context_limit for server in servers]
    known = [limit for limit in limits if limit is not None]
    if not servers:
        sheet.unknown("mps_contexts_limit", "no_server", daemon=look.name)
    elif len(known) < len(limits):
        reason = next(server.unknown.get("context_limit") for server in servers if server.context_limit is None)
        sheet.unknown("mps_contexts_limit", reason, daemon=look.name)
    else:
        sheet.put("mps_contexts_limit", sum(known), look.name)
