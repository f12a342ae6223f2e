"""Whether a measuring client may join now: decided before any process of ours makes a CUDA context.

A client of the wrong uid is queued, and the control daemon then shuts the running server down at the first idle
moment, even if that client has died since (recordings wrong-uid-client, armed-shutdown-by-dead-client). So the
answer to every doubt is a refusal, with its reason and what to do. `decide` is pure; it is asked before the launch
with a fresh look, and again with a fresher one before each cell.
"""

from __future__ import annotations

from mpswatch.documents import Conditions, DaemonLook, GpuLook, PollSnapshot, Reason, ServerLook
from mpswatch.sweep.permit import Circumstances, Limits, LockHolder, Permit, Refusal


def decide(
    snapshot: PollSnapshot,
    *,
    daemon: str,
    gpu_uuid: str,
    limits: Limits,
    circumstances: Circumstances,
    permitted: Permit | None = None,
    cells_run: int = 0,
) -> Permit | Refusal:
    """May a client join `daemon`'s server on `gpu_uuid`, going by this snapshot?

    Within a sweep `permitted` is the permit that it began with (as adopted since), and `cells_run` how many cells
    have run: a device that we ourselves have just kept busy says nothing about others' use of it.
    """
    look = next((look for look in snapshot.daemons if look.name == daemon), None)
    if look is None:
        return Refusal(reason=Reason.NO_POLL_YET, detail=f"the daemon {daemon} was not looked at", remedy=None)
    if permitted is not None and permitted.simulated != snapshot.simulated:
        return Refusal(
            reason=Reason.SERVER_CHANGED, detail="the pipe directory changed between a rehearsal and a real stack"
        )
    gpu = _gpu(snapshot, gpu_uuid)
    if isinstance(gpu, Refusal):
        return gpu
    return (
        _alone(look, circumstances)
        or _daemon(look)
        or _server(look, limits, permitted)
        or _fault(circumstances, limits)
        or _memory(gpu.conditions, circumstances, limits)
        or (None if cells_run else _utilization(gpu.conditions, limits))
        or _permit(snapshot, look, gpu, permitted)
    )


def _permit(snapshot: PollSnapshot, look: DaemonLook, gpu: GpuLook, permitted: Permit | None) -> Permit:
    servers = look.servers.value or ()
    return Permit(
        simulated=snapshot.simulated,
        daemon=look,
        gpu=gpu,
        server=servers[0] if servers else None,
        own=permitted is not None and permitted.own,
    )


def _gpu(snapshot: PollSnapshot, gpu_uuid: str) -> GpuLook | Refusal:
    looks = snapshot.gpus.value
    if looks is None:
        return Refusal(
            reason=_reason(snapshot.gpus.unknown_reason, Reason.NO_GPU),
            detail=f"the GPU could not be looked at: {snapshot.gpus.unknown_reason}",
            remedy="see `mpswatch doctor` for NVML and nvidia-smi",
        )
    look = next((look for look in looks if look.gpu.uuid == gpu_uuid), None)
    if look is None:
        return Refusal(reason=Reason.NO_GPU, detail=f"there is no GPU {gpu_uuid}", remedy="check the GPU's UUID")
    if look.gpu.mig_enabled:
        return Refusal(
            reason=Reason.MIG,
            detail=f"GPU {gpu_uuid} is partitioned by MIG, where a cap means something else",
            remedy="sweep a GPU without MIG",
        )
    return look


def _alone(look: DaemonLook, circumstances: Circumstances) -> Refusal | None:
    for holder in circumstances.lock_holders:
        if (
            not holder.left_over
            and holder.age_seconds is not None
            and holder.age_seconds <= circumstances.sweep_longest
        ):
            return Refusal(
                reason=Reason.SWEEP_RUNNING,
                detail=f"another sweep runs on {look.pipe_directory} (process {holder.pid})",
                remedy="wait until it is done",
            )
        return Refusal(
            reason=Reason.CLIENT_LEFT_OVER,
            detail=f"a measuring client of an earlier sweep still holds the lock on {look.pipe_directory}"
            f" (taken by process {holder.pid}, {_age(holder)})",
            remedy="leave it alone while the stack works; it goes when the driver lets it, or when the stack is"
            " restarted in a maintenance window",
        )
    return None


def _age(holder: LockHolder) -> str:
    return "which is gone" if holder.age_seconds is None else f"{holder.age_seconds:.0f} s old"


def _daemon(look: DaemonLook) -> Refusal | None:
    if look.up_reason is Reason.PROTOCOL_UNSUPPORTED or (look.protocol or "").lstrip("vV").startswith("3"):
        return Refusal(
            reason=Reason.PROTOCOL_UNSUPPORTED,
            detail=f"the control daemon {look.name} speaks MPS protocol 3, which mpswatch does not measure under",
            remedy="start the control daemon without the opt-in to protocol 3",
        )
    if look.up is not True:
        silent = look.up_reason or Reason.DAEMON_SILENT
        return Refusal(
            reason=silent,
            detail=f"the control daemon {look.name} cannot be asked: {silent.value}",
            remedy=f"start nvidia-cuda-mps-control -d for {look.pipe_directory}, or correct the pipe directory",
        )
    if look.servers.value is None:
        reason = _reason(look.servers.unknown_reason, Reason.DAEMON_SILENT)
        return Refusal(
            reason=reason,
            detail=f"the control daemon {look.name} did not say which servers it runs: {reason.value}",
            remedy="see `mpswatch doctor`",
        )
    return None


def _server(look: DaemonLook, limits: Limits, permitted: Permit | None) -> Refusal | None:
    servers = look.servers.value or ()
    if not servers:
        return _no_server(look, limits, permitted)
    if len(servers) > 1:
        pids = ", ".join(str(server.pid) for server in servers)
        return Refusal(
            reason=Reason.SEVERAL_SERVERS,
            detail=f"the control daemon {look.name} lists several servers: {pids}",
            remedy="wait until one of them is gone: which of them a client would join is not known",
        )
    (server,) = servers
    return (
        _same(server, permitted)
        or _user(server, limits)
        or _active(server)
        or _settled(server, limits, own=permitted is not None and permitted.own)
        or _room(server, limits)
    )


def _no_server(look: DaemonLook, limits: Limits, permitted: Permit | None) -> Refusal | None:
    if permitted is not None and permitted.server is not None:
        return Refusal(
            reason=Reason.SERVER_VANISHED,
            detail=f"the server {permitted.server.pid} of this sweep is gone",
            remedy=None,
        )
    if limits.stack_uid is not None and limits.stack_uid == limits.client_uid:
        return None
    if limits.stack_uid is not None:
        detail = f"and the stack's uid is {limits.stack_uid}, while the measuring client runs as {limits.client_uid}"
        remedy = f"run mpswatch as uid {limits.stack_uid}, or start one of the stack's services first"
    else:
        detail = f"and a sweep would create one for uid {limits.client_uid} and lock other users out"
        remedy = "start one of the stack's services first, or set sweep.stack_uid to the stack's uid"
    return Refusal(
        reason=Reason.NO_SERVER, detail=f"the control daemon {look.name} runs no server, {detail}", remedy=remedy
    )


def _same(server: ServerLook, permitted: Permit | None) -> Refusal | None:
    if server.start_ticks is None:
        return Refusal(
            reason=server.unknown.get("start_ticks", Reason.PROCESS_GONE),
            detail=f"the server {server.pid} has no process that can be seen in /proc",
            remedy="run mpswatch in the control daemon's pid namespace (the host's)",
        )
    if permitted is None or permitted.server is None:
        return None
    if (server.pid, server.start_ticks) != (permitted.server_pid, permitted.start_ticks):
        return Refusal(
            reason=Reason.SERVER_CHANGED,
            detail=f"the server was {permitted.server_pid} and is {server.pid} now",
            remedy="the next sweep measures under the new server, once it has settled",
        )
    return None


def _user(server: ServerLook, limits: Limits) -> Refusal | None:
    if server.multi_user:
        return None
    if server.uid is None:
        return Refusal(
            reason=server.unknown.get("uid", Reason.UID_MISMATCH),
            detail=f"whose server {server.pid} is, is not known, and a client of another uid would shut it down",
            remedy="run mpswatch where the server's process can be seen in /proc",
        )
    if server.uid != limits.client_uid:
        return Refusal(
            reason=Reason.UID_MISMATCH,
            detail=f"the server {server.pid} serves uid {server.uid}, the measuring client runs as {limits.client_uid}:"
            " it would be queued, and the daemon would shut the server down",
            remedy=f"run mpswatch as uid {server.uid}, or the control daemon with -multiuser-server",
        )
    return None


def _active(server: ServerLook) -> Refusal | None:
    if server.server_state == "ACTIVE":
        return None
    if server.server_state is None:
        reason = server.unknown.get("server_state", Reason.SERVER_NOT_ACTIVE)
        return Refusal(reason=reason, detail=f"the state of server {server.pid} is not known: {reason.value}")
    fault = "FAULT" in server.server_state.upper()
    return Refusal(
        reason=Reason.SERVER_FAULT if fault else Reason.SERVER_NOT_ACTIVE,
        detail=f"the server {server.pid} is {server.server_state}, not ACTIVE",
        remedy="look into the MPS log directory's server.log" if fault else "wait until it is ACTIVE",
    )


def _settled(server: ServerLook, limits: Limits, *, own: bool) -> Refusal | None:
    if own or limits.settle <= 0:
        return None
    if server.age_seconds is None:
        return Refusal(
            reason=server.unknown.get("age_seconds", Reason.SERVER_UNSETTLED),
            detail=f"how old server {server.pid} is, is not known",
        )
    if server.age_seconds < limits.settle:
        return Refusal(
            reason=Reason.SERVER_UNSETTLED,
            detail=f"the server {server.pid} is {server.age_seconds:.0f} s old; sweep.settle is {limits.settle:.0f} s",
            remedy=f"wait {limits.settle - server.age_seconds:.0f} s",
        )
    return None


def _room(server: ServerLook, limits: Limits) -> Refusal | None:
    if server.clients is None:
        reason = server.unknown.get("clients", Reason.DAEMON_NONSENSE)
        return Refusal(reason=reason, detail=f"the clients of server {server.pid} are not known: {reason.value}")
    limit = limits.context_limit if server.context_limit is None else server.context_limit
    # A client may have several contexts, and the limit is of contexts.
    used = max(len(server.clients), len(server.contexts or ()))
    if used + 1 > limit - limits.headroom:
        return Refusal(
            reason=Reason.SERVER_FULL,
            detail=f"the server {server.pid} has {used} of {limit} places taken, and {limits.headroom} must stay free",
            remedy="wait until clients have left, or lower sweep.headroom",
        )
    return None


def _fault(circumstances: Circumstances, limits: Limits) -> Refusal | None:
    age = circumstances.last_fault_age
    if age is None or age >= limits.fault_quiet:
        return None
    return Refusal(
        reason=Reason.RECENT_FAULT,
        detail=f"the server had a fault {age:.0f} s ago, and sweep.fault_quiet is {limits.fault_quiet:.0f} s",
        remedy=f"wait {limits.fault_quiet - age:.0f} s, and look into server.log meanwhile",
    )


def _memory(conditions: Conditions, circumstances: Circumstances, limits: Limits) -> Refusal | None:
    need = circumstances.need_bytes + limits.memory_margin_bytes
    where, free = "on the device", conditions.memory_free_bytes
    if free is None:
        # Unified memory: the device's is the host's.
        where, free = "of the host (the device's own is unknown)", circumstances.available_memory
    if free is None:
        return Refusal(
            reason=Reason.MEMORY_SHORT,
            detail="how much memory is free is not known, neither on the device nor of the host",
            remedy="see `mpswatch doctor`",
        )
    if free < need:
        return Refusal(
            reason=Reason.MEMORY_SHORT,
            detail=f"{free >> 20} MiB are free {where}, and a cell needs {need >> 20} MiB with its margin",
            remedy="wait until memory is free, or set a smaller sweep.size",
        )
    return None


def _utilization(conditions: Conditions, limits: Limits) -> Refusal | None:
    if limits.max_utilization is None:
        return None
    seen = conditions.utilization_ratio
    if seen is None:
        reason = conditions.unknown.get("utilization_ratio", Reason.NOT_SUPPORTED)
        return Refusal(
            reason=reason,
            detail=f"sweep.max_utilization is set, and the GPU's utilisation is not known: {reason.value}",
            remedy="unset sweep.max_utilization on this GPU",
        )
    if seen > limits.max_utilization:
        return Refusal(
            reason=Reason.UTILIZATION_HIGH,
            detail=f"the GPU is {seen:.0%} busy, and sweep.max_utilization is {limits.max_utilization:.0%}",
            remedy="wait until the GPU is less busy",
        )
    return None


def _reason(text: str | None, otherwise: Reason) -> Reason:
    """An envelope's reason, which is a `Reason`'s value wherever this program wrote it."""
    try:
        return Reason(text) if text is not None else otherwise
    except ValueError:
        return otherwise
