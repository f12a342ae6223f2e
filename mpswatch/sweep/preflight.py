"""Whether a measuring client may join now: decided before any process of ours makes a CUDA context.

A client of the wrong uid is queued, and the control daemon then shuts the running server down at the first idle
moment, even if that client has died since (recordings wrong-uid-client, armed-shutdown-by-dead-client). So the
answer to every doubt is a refusal, with its reason and what to do. `decide` is pure; it is asked before the launch
with a fresh look, and again with a fresher one before each cell.
"""

from __future__ import annotations

from mpswatch.documents import Conditions, DaemonLook, GpuLook, PollSnapshot, Reason
from mpswatch.sweep.permit import Circumstances, Limits, LockHolder, Permit, Refusal
from mpswatch.sweep.server_rules import as_reason, doubt_daemon, doubt_server


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
        or doubt_daemon(look)
        or doubt_server(look, limits, permitted)
        or _fault(circumstances, limits)
        or _memory(gpu.conditions, circumstances, limits)
        or _memory_limit(look, gpu_uuid, circumstances, limits)
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
            reason=as_reason(snapshot.gpus.unknown_reason, Reason.NO_GPU),
            detail=f"the GPU could not be looked at: {_asked(snapshot) or snapshot.gpus.unknown_reason}",
            remedy="see `mpswatch doctor`: one of the two is enough, the driver's libnvidia-ml.so.1 (gpu.source: nvml)"
            " or nvidia-smi (gpu.nvidia_smi names it); a container needs the utility capability for either",
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


def _asked(snapshot: PollSnapshot) -> str:
    """Every source that was asked about GPUs, and why it gave none: `nvml: nvml_missing, nvidia-smi: …`."""
    failed = [look for look in snapshot.sources if look.source in {"nvml", "nvidia-smi"} and not look.success]
    return ", ".join(f"{look.source}: {look.reason.value if look.reason else 'no answer'}" for look in failed)


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
    why = conditions.unknown.get("memory_free_bytes", Reason.NOT_SUPPORTED)
    if free is None and why is not Reason.NOT_SUPPORTED:
        return Refusal(
            reason=why,
            detail=f"how much memory is free on the device is not known: {why.value}",
            remedy="see `mpswatch doctor`",
        )
    if free is None:
        # Unified memory, of which the driver says "not supported": the device's is the host's.
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


def _memory_limit(look: DaemonLook, gpu_uuid: str, circumstances: Circumstances, limits: Limits) -> Refusal | None:
    """Whether the server lets a client have as much as a cell needs, as far as it was asked."""
    need = circumstances.need_bytes + limits.memory_margin_bytes
    for server in look.servers.value or ():
        given = (server.memory_limits or {}).get(gpu_uuid)
        if given is not None and given < need:
            return Refusal(
                reason=Reason.MEMORY_SHORT,
                detail=f"the server {server.pid} gives each client {given >> 20} MiB at most, and a cell needs"
                f" {need >> 20} MiB with its margin",
                remedy="set a smaller sweep.size, or a higher limit (set_device_pinned_mem_limit) on the stack",
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
