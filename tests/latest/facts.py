"""Facts for the tests of the publishing rooms: one moment where everything is known, one where nothing is, and runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from mpswatch.documents import (
    SCHEMA_VERSION,
    Cell,
    Conditions,
    Context,
    DaemonLook,
    Disagreement,
    Envelope,
    Event,
    Gpu,
    GpuLook,
    GpuProcess,
    MpsFacts,
    PollSnapshot,
    Protocol,
    Reason,
    ServerLook,
    SmExpectation,
    SourceLook,
    SweepDocument,
    SystemMemory,
    Tenant,
    Waiting,
)

NOON = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
HOST = "gpu-host"
DAEMON = "mps"
PIPE = "/tmp/nvidia-mps"
GPU = "GPU-4a1bc0de-1111-2222-3333-444455556666"
MIB = 1 << 20


def known(value, at=NOON, source="test", *, simulated=False):
    state = "simulated" if simulated else "measured"
    return Envelope(value=value, state=state, source=source, measured_at=at, evidence={}, unknown_reason=None)


def unknown(reason, at=NOON, source="test"):
    return Envelope(value=None, state="unknown", source=source, measured_at=at, evidence={}, unknown_reason=str(reason))


def gpu(uuid=GPU, **changes):
    facts = {
        "uuid": uuid,
        "index": 0,
        "name": "NVIDIA H200",
        "driver_version": "580.159.04",
        "memory_total_bytes": 143771 * MIB,
        "compute_capability": "9.0",
        "sm_count": 132,
        "compute_mode": "default",
    }
    return Gpu(**(facts | changes))


def conditions(at=NOON, used=5000 * MIB, **changes):
    unknown_fields = {} if used is not None else {"memory_used_bytes": Reason.NOT_SUPPORTED}
    facts = {"measured_at": at, "source": "nvml", "memory_used_bytes": used, "unknown": unknown_fields}
    return Conditions(**(facts | changes))


def server(pid=100, clients=(201, 202, 301), **changes):
    facts = {
        "pid": pid,
        "start_ticks": 5000,
        "age_seconds": 3600.0,
        "uid": 0,
        "multi_user": False,
        "server_state": "ACTIVE",
        "clients": clients,
        "contexts": tuple(
            Context(pid=client, context_id=1, server_pid=pid, device="GPU-4a1b", pid_namespace=4026531836, command="x")
            for client in clients or ()
        ),
        "context_limit": 48,
        "active_thread_percentage": 100.0,
        "memory_limits": {GPU: 40 << 30},
    }
    return ServerLook(**(facts | changes))


def daemon(name=DAEMON, servers=None, **changes):
    facts = {
        "name": name,
        "pipe_directory": PIPE,
        "up": True,
        "protocol": "2",
        "default_active_thread_percentage": 100.0,
        "servers": known((server(),)) if servers is None else servers,
        "our_session": 300,
        "waiting": Waiting(),
        "default_memory_limits": {GPU: 80 << 30},
        "limits_asked_at": NOON,
    }
    return DaemonLook(**(facts | changes))


def tenant(pid, kind, memory=1000 * MIB, **changes):
    facts = {
        "pid": pid,
        "start_ticks": pid * 10,
        "gpu_uuid": GPU,
        "kind": kind,
        "daemon": DAEMON if kind in ("server", "ours", "managed") else None,
        "process_name": f"program-{pid}",
        "used_memory_bytes": memory,
        "uid": 1000,
        "unknown": {} if memory is not None else {"used_memory_bytes": Reason.NOT_SUPPORTED},
    }
    return Tenant(**(facts | changes))


TENANTS = (
    tenant(100, "server", 66 * MIB, process_name="nvidia-cuda-mps-server"),
    tenant(201, "managed", 1000 * MIB),
    tenant(202, "managed", 2000 * MIB),
    tenant(301, "ours", 500 * MIB),
    tenant(401, "foreign", 700 * MIB, process_name="/usr/bin/python3"),
    tenant(402, "foreign", 300 * MIB, process_name="Xorg"),
)


def gpu_look(processes=None, **changes):
    rows = tuple(
        GpuProcess(pid=row.pid, used_memory_bytes=row.used_memory_bytes, mps_client=row.kind in ("managed", "ours"))
        for row in TENANTS
    )
    facts = {"gpu": gpu(), "processes": known(rows) if processes is None else processes, "conditions": conditions()}
    return GpuLook(**(facts | changes))


def poll(at=NOON, **changes):
    """A poll where everything is known: two managed clients, one of ours, two foreign tenants."""
    facts = {
        "host": HOST,
        "started_at": at - timedelta(seconds=0.01),
        "finished_at": at,
        "simulated": False,
        "daemons": (daemon(),),
        "gpus": known((gpu_look(),)),
        "tenants": known(TENANTS),
        "disagreements": (),
        "system_memory": SystemMemory(total_bytes=512 * 1024 * MIB, available_bytes=400 * 1024 * MIB),
        "sources": (
            SourceLook(source="mps", daemon=DAEMON, success=True, duration_seconds=0.002),
            SourceLook(source="nvml", daemon=None, success=True, duration_seconds=0.001),
        ),
    }
    return PollSnapshot(**(facts | changes))


def blind_poll(at=NOON):
    """A poll where nothing is known: the daemon is silent and NVML is missing."""
    silent = unknown(Reason.DAEMON_SILENT, at)
    return poll(
        at,
        daemons=(
            daemon(
                up=None,
                up_reason=Reason.DAEMON_SILENT,
                protocol=None,
                servers=silent,
                our_session=None,
                default_active_thread_percentage=None,
                waiting=None,
                default_memory_limits=None,
                limits_asked_at=None,
                unknown=dict.fromkeys(
                    ("default_active_thread_percentage", "default_memory_limits", "waiting"), Reason.DAEMON_SILENT
                ),
            ),
        ),
        gpus=unknown(Reason.NVML_MISSING, at),
        tenants=unknown(Reason.NVML_MISSING, at),
        sources=(
            SourceLook(source="mps", daemon=DAEMON, success=False, duration_seconds=5.0, reason=Reason.DAEMON_SILENT),
            SourceLook(source="nvml", daemon=None, success=False, duration_seconds=0.001, reason=Reason.NVML_MISSING),
        ),
    )


CURVE = {"100": (132, 742.0), "75": (98, 587.0), "50": (66, 436.0), "25": (32, 223.0), "10": (12, 85.0)}


def cell(cap, at=NOON, *, failed=None, simulated=False, sm_total=132, **changes):
    sm_count, tflops = CURVE[cap]
    facts = {
        "cap": cap,
        "iters": 80,
        "size": 4096,
        "seconds": None if failed else 2 * 4096**3 * 80 / tflops / 1e12,
        "tflops": None if failed else tflops,
        "client_reported_pid": None if failed else 301,
        "client_pid_is_namespaced": None if failed else False,
        "mps_clients_joined_during_cell": None if failed else (301,),
        "self_was_managed": None if failed else True,
        "managed_clients_after_cell": None if failed else (201, 202),
        "state": "unknown" if failed else "simulated" if simulated else "measured",
        "unknown_reason": str(failed) if failed else None,
        "measured_at": at,
        "sm_count": None if failed else sm_count,
        "sm_count_expected": SmExpectation(
            total=sm_total, at_most=max(sm_total * float(cap) / 100, 8), above=sm_total * float(cap) / 100 - 8
        ),
        "sm_count_as_expected": None if failed else True,
    }
    return Cell(**(facts | changes))


def sweep(at=NOON, *, failed=None, run_id="r1", simulated=False, plan="quick", cells=None, **changes):
    """A run that finished at `at`; `failed` maps caps to the reason that their cell is unknown."""
    failed = failed or {}
    made = cells or tuple(cell(cap, at, failed=failed.get(cap), simulated=simulated) for cap in CURVE)
    curve = {one.cap: one.tflops for one in made}
    complete = all(one.state != "unknown" for one in made)
    facts = {
        "schema_version": SCHEMA_VERSION,
        "what": "test",
        "harness": "test",
        "harness_note": "",
        "host": HOST,
        "recorded_at": at,
        "pipe_directory": PIPE,
        "cap_semantics": "",
        "protocol": Protocol(
            caps_percent="100,75,50,25,10",
            iters=80,
            matrix_size=4096,
            dtype="fp16",
            op="matmul",
            client_runtime="process /home/someone/venv/bin/python as uid 1000",
            plan=plan,
        ),
        "managed_clients_before": known((201, 202), at, simulated=simulated),
        "managed_clients_after": known((201, 202), at, simulated=simulated),
        "unmanaged_tenants": known((), at, simulated=simulated),
        "cells": made,
        "tflops_by_cap": known(curve, at, simulated=simulated)
        if any(curve.values())
        else unknown(Reason.ALL_CELLS_FAILED, at),
        "complete_sweep": complete,
        "partial_run_note": None if complete else "cells failed",
        "run_id": run_id,
        "started_at": at - timedelta(seconds=2),
        "finished_at": at,
        "simulated": simulated,
        "gpu": gpu(),
        "mps": MpsFacts(
            daemon=DAEMON,
            protocol="2",
            server_pid=100,
            server_start_ticks=5000,
            server_uid=0,
            multi_user=False,
            server_state="ACTIVE",
            default_active_thread_percentage=100.0,
        ),
    }
    return SweepDocument(**(facts | changes))


def event(kind, at=NOON, **changes):
    facts = {"kind": kind, "at": at, "host": HOST, "message": kind.replace("_", " "), "daemon": DAEMON}
    return Event(**(facts | changes))


def refusal(reason=Reason.UID_MISMATCH, at=NOON, **changes):
    return event("sweep_refused", at, **({"gpu_uuid": GPU, "plan": "quick", "reason": reason} | changes))


def disagreement(**changes):
    facts = {"daemon": DAEMON, "gpu_uuid": GPU, "only_in_client_list": (202,), "only_in_driver_list": ()}
    return Disagreement(**(facts | changes))
