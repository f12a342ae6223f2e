"""Facts for the tests of the publishing rooms: one moment where everything is known, one where nothing is, and runs."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

from mpswatch.documents import (
    SCHEMA_VERSION,
    CapVerdict,
    Cell,
    Conditions,
    ConditionsDuring,
    Context,
    DaemonLook,
    Disagreement,
    Envelope,
    Event,
    Figure,
    Gpu,
    GpuLook,
    GpuProcess,
    InterferenceCell,
    InterferenceDocument,
    InterferenceProtocol,
    MpsFacts,
    PollSnapshot,
    Protocol,
    Rate,
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


SUSTAINED = {"100": 647.0, "75": 541.0, "50": 429.0, "25": 226.0, "10": 84.0}
"""Sustained TFLOPS of an H200 whose burst is `CURVE`: only the high caps are held back by power."""


def figure(tflops, *, clock, power, spread=0.002, **changes):
    facts = {
        "tflops": tflops,
        "interval_low": tflops * (1 - spread),
        "interval_high": tflops * (1 + spread),
        "confidence": 0.95,
        "within_width": True,
        "spread": 2 * spread,
        "between_repeats": spread,
        "count": 16,
        "repeats": 2,
        "conditions_during": ConditionsDuring(count=5, sm_clock_mhz=clock, power_watts=power, throttle_reasons=()),
    }
    return Figure(**(facts | changes))


def thorough(at=NOON, *, scale=1.0, failed=None, **changes):
    """A run of plan thorough: burst at 1980 MHz, sustained held back by power; `scale` slows the sustained alone."""
    failed = failed or {}
    cells = tuple(
        cell(
            cap,
            at,
            failed=failed.get(cap),
            verdict=CapVerdict(verdict="enforced", evidence=("the client saw as many SMs as the cap implies",)),
            **(
                {}
                if cap in failed
                else {
                    "burst": figure(burst, clock=1980.0, power=390.0),
                    "sustained": figure(SUSTAINED[cap] * scale, clock=1485.0 if cap == "100" else 1900.0, power=690.0),
                }
            ),
        )
        for cap, (_, burst) in CURVE.items()
    )
    return sweep(at, **({"plan": "thorough", "cells": cells, "run_id": "thorough-1"} | changes))


def rate(value, unit="TFLOPS"):
    return Rate(
        unit=unit, value=value, interval_low=value * 0.99, interval_high=value * 1.01, confidence=0.975, spread=0.02,
        count=25, settled=True,
    )  # fmt: skip


MATRIX = {
    "25": (0.002, 0.029, 0.290, 0.505),
    "50": (0.016, 0.325, 0.393, 0.501),
    "75": (0.203, 0.412, 0.489, 0.519),
    "100": (0.246, 0.338, 0.425, 0.501),
}
"""What matmul under a cap (row) loses beside matmul under 25, 50, 75 and 100 %: about as an H200 has it."""

KINDS = {"matmul": (0.325, 0.105, 0.001), "stream": (0.050, 0.480, 0.001), "launch": (0.190, 0.080, 0.006)}


def pair(order, victim, aggressor, slowdown, *, failed=None, simulated=False, alone=200.0):
    (cap, kind), (other, other_kind) = victim, aggressor or (None, None)
    unit = {"matmul": "TFLOPS", "stream": "GB/s", "launch": "launches/s"}[kind]
    measured = {
        "victim": rate(alone * (1 - slowdown), unit),
        "victim_sm_count": CURVE[cap][0],
        "conditions_during": ConditionsDuring(count=5, sm_clock_mhz=1830.0, power_watts=640.0, throttle_reasons=()),
        **({} if aggressor is None else {
            "slowdown": slowdown, "slowdown_low": slowdown - 0.005, "slowdown_high": slowdown + 0.005,
            "aggressor": rate(alone),
        }),
    }  # fmt: skip
    return InterferenceCell(
        order=order, victim_cap=cap, victim_kind=kind, aggressor_cap=other, aggressor_kind=other_kind, measured_at=NOON,
        state="unknown" if failed else "simulated" if simulated else "measured",
        unknown_reason=str(failed) if failed else None, **({} if failed else measured),
    )  # fmt: skip


def interference(at=NOON, *, failed=None, simulated=False, run_id="pairs-1", **changes):
    """A whole matrix that finished at `at`; `failed` maps (victim cap, aggressor cap) of matmul to a reason."""
    failed = failed or {}
    orders = itertools.count(1)
    alone = {cap: SUSTAINED[cap] for cap in MATRIX}
    solo = [pair(next(orders), (cap, "matmul"), None, 0.0, alone=alone[cap], simulated=simulated) for cap in MATRIX]
    solo += [pair(next(orders), ("50", kind), None, 0.0, simulated=simulated) for kind in ("stream", "launch")]
    pairs = [
        pair(next(orders), (cap, "matmul"), (other, "matmul"), lost, alone=alone[cap], simulated=simulated,
             failed=failed.get((cap, other)))
        for cap, row in MATRIX.items() for other, lost in zip(MATRIX, row, strict=True)
    ]  # fmt: skip
    pairs += [
        pair(next(orders), ("50", kind), ("50", other), lost, simulated=simulated)
        for kind, row in KINDS.items() for other, lost in zip(KINDS, row, strict=True)
        if (kind, other) != ("matmul", "matmul")
    ]  # fmt: skip
    swept = sweep(at, simulated=simulated)
    facts = {
        "schema_version": SCHEMA_VERSION,
        "what": "test",
        "host": HOST,
        "run_id": run_id,
        "recorded_at": at,
        "started_at": at - timedelta(seconds=54),
        "finished_at": at,
        "simulated": simulated,
        "pipe_directory": PIPE,
        "gpu": gpu(),
        "mps": swept.mps,
        "protocol": InterferenceProtocol(
            size=4096, dtype="fp16", seed=1, client_runtime="process /home/someone/venv/bin/python as uid 1000",
            backend="torch", settle_seconds=0.3, window_seconds=0.5,
            kinds={"matmul": "square matmul", "stream": "streaming", "launch": "tiny kernels"},
            slowdown="1 - beside / alone",
        ),
        "unmanaged_tenants": swept.unmanaged_tenants,
        "managed_clients_before": swept.managed_clients_before,
        "solo": tuple(solo),
        "pairs": tuple(pairs),
        "complete": not failed,
        "partial_run_note": "pairs failed" if failed else None,
        "mpswatch_version": "0.1.0",
    }  # fmt: skip
    return InterferenceDocument(**(facts | changes))


def event(kind, at=NOON, **changes):
    facts = {"kind": kind, "at": at, "host": HOST, "message": kind.replace("_", " "), "daemon": DAEMON}
    return Event(**(facts | changes))


def refusal(reason=Reason.UID_MISMATCH, at=NOON, **changes):
    return event("sweep_refused", at, **({"gpu_uuid": GPU, "plan": "quick", "reason": reason} | changes))


def disagreement(**changes):
    facts = {"daemon": DAEMON, "gpu_uuid": GPU, "only_in_client_list": (202,), "only_in_driver_list": ()}
    return Disagreement(**(facts | changes))
