"""From what a sweep saw to its document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from mpswatch import __version__
from mpswatch.documents import (
    SCHEMA_VERSION,
    Cell,
    DaemonLook,
    Envelope,
    MpsFacts,
    PollSnapshot,
    Protocol,
    Reason,
    ReferenceTenant,
    State,
    SweepDocument,
)
from mpswatch.evidence.median import METHOD
from mpswatch.evidence.verdict import verdicts
from mpswatch.sweep import sm
from mpswatch.sweep.membership import clients_of
from mpswatch.sweep.messages import Ready, Result
from mpswatch.sweep.permit import Permit
from mpswatch.sweep.plan import Plan, item_bytes
from mpswatch.sweep.tenants_present import foreign_tenants, unresolved_tenants

_WHAT = "matmul throughput of one MPS client under each active-thread cap, beside the stack's own clients"
_HARNESS = "mpswatch sweep"
_HARNESS_NOTE = (
    "Each cell is a client of the stack's own MPS control daemon, not of a private one. It runs work only after it was"
    " found in that daemon's client list, on the server that was there before; the list was read again when it had"
    " measured, and once more when it had left. `mpswatch sweep` repeats it."
)
_CAP_SEMANTICS = (
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE limits how many streaming multiprocessors a client may use; it reserves none."
    " Kernels of other clients may run on the same ones at the same time, so a cap that shapes throughput is no"
    " evidence of isolation, and MPS isolates no memory."
)
_LIST = "nvidia-cuda-mps-control get_client_list"


@dataclass(frozen=True, kw_only=True)
class Run:
    """All of one sweep, ready to be written down.

    `snapshot` and `permit` are those of the first preflight, `last_permit` the newest (with a server that a cell of
    ours created). `after` is the look at the daemon when the launcher had left.
    """

    run_id: str
    trigger: str
    host: str
    pipe_directory: str
    gpu_uuid: str
    client_runtime: str
    plan: Plan
    seed: int
    started_at: datetime
    snapshot: PollSnapshot
    permit: Permit
    last_permit: Permit
    ready: Ready
    cells: Sequence[Cell]
    caps_run: tuple[str, ...]
    results: Sequence[Result]
    timings: dict[str, float]
    stuck: tuple[int, ...]
    after: DaemonLook
    finished_at: datetime


def new_run_id(at: datetime, random: str) -> str:
    """Sorts by time: `20261130T174215Z-1f2e`."""
    return f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}-{random}"


def document(run: Run) -> SweepDocument:
    """The sweep's document, partial or complete."""
    complete = all(cell.state != "unknown" for cell in run.cells)
    return SweepDocument(
        schema_version=SCHEMA_VERSION,
        what=_WHAT,
        harness=_HARNESS,
        harness_note=_HARNESS_NOTE,
        host=run.host,
        recorded_at=run.finished_at,
        pipe_directory=run.pipe_directory,
        cap_semantics=_CAP_SEMANTICS,
        protocol=_protocol(run),
        managed_clients_before=clients(run.permit.daemon, run.permit.simulated),
        managed_clients_after=clients(run.after, run.permit.simulated),
        unmanaged_tenants=unmanaged(run.snapshot, run.gpu_uuid, simulated=run.permit.simulated),
        cells=tuple(
            msgspec.structs.replace(cell, verdict=verdict)
            for cell, verdict in zip(run.cells, verdicts(run.cells), strict=True)
        ),
        tflops_by_cap=_tflops_by_cap(run),
        complete_sweep=complete,
        partial_run_note=None if complete else partial_run_note(run.cells),
        run_id=run.run_id,
        started_at=run.started_at,
        finished_at=run.finished_at,
        simulated=run.permit.simulated,
        mpswatch_version=__version__,
        gpu=run.permit.gpu.gpu,
        mps=mps_facts(run.last_permit),
        trigger=run.trigger,
        launcher_timings=run.timings,
        client_facts=run.ready.facts,
        stuck_clients=run.stuck,
    )


def partial_run_note(cells: Sequence[Cell]) -> str:
    """Which caps have no number, and why, in one sentence each."""
    failed = [cell for cell in cells if cell.state == "unknown"]
    notes = [f"{len(cells) - len(failed)} of {len(cells)} caps have a number."]
    notes += [
        f"{cell.cap} %: {cell.unknown_reason}" + (f" ({cell.failure})." if cell.failure else ".") for cell in failed
    ]
    return " ".join(notes)


def _state(*, simulated: bool) -> State:
    return "simulated" if simulated else "measured"


def _protocol(run: Run) -> Protocol:
    first = run.results[0] if run.results else None
    return Protocol(
        caps_percent=",".join(run.plan.caps),
        iters=run.plan.iters,
        matrix_size=run.plan.size,
        dtype=first.dtype if first else run.plan.dtype,
        op="matmul",
        client_runtime=run.client_runtime,
        plan=run.plan.name,
        backend="torch" if run.ready.torch is not None else "numpy",
        seed=run.seed,
        input_values=first.input_values if first else None,
        warm_up_iterations=first.warm_up_iterations if first else None,
        l2_state=_l2_state(run.plan),
        cells_run=run.caps_run if run.plan.thorough is not None else None,
        interval_method=METHOD if run.plan.thorough is not None else None,
    )


def _l2_state(plan: Plan) -> str:
    """What a cache can help, said rather than taken away: work that is repeated finds its cache warm."""
    mib = 3 * plan.size**2 * item_bytes(plan.dtype) >> 20
    return (
        f"not flushed: every iteration multiplies the same two matrices into a third ({mib} MiB in all), as the"
        " iteration before left the cache"
    )


def clients(look: DaemonLook, simulated: bool) -> Envelope[tuple[int, ...]]:  # noqa: FBT001 - the only other argument
    """The daemon's list of clients, as a look had it."""
    listed = clients_of(look)
    evidence: dict[str, Any] = {"basis": "the daemon's own client list"}
    if listed is None:
        reason = look.up_reason.value if look.up_reason else look.servers.unknown_reason or Reason.DAEMON_NONSENSE.value
        return Envelope(
            value=None,
            state="unknown",
            source=_LIST,
            measured_at=look.servers.measured_at,
            evidence=evidence,
            unknown_reason=reason,
        )
    servers = [server.pid for server in look.servers.value or ()]
    return Envelope(
        value=listed,
        state=_state(simulated=simulated),
        source=_LIST,
        measured_at=look.servers.measured_at,
        evidence=evidence | {"server_pids": servers},
        unknown_reason=None,
    )


def unmanaged(snapshot: PollSnapshot, gpu_uuid: str, *, simulated: bool) -> Envelope[tuple[ReferenceTenant, ...]]:
    """Who was on the GPU outside MPS before anything was measured."""
    present = foreign_tenants(snapshot, gpu_uuid)
    tenants = snapshot.tenants
    if isinstance(present, Reason):
        return Envelope(
            value=None,
            state="unknown",
            source=tenants.source,
            measured_at=tenants.measured_at,
            evidence={},
            unknown_reason=present.value,
        )
    return Envelope(
        value=present,
        state=_state(simulated=simulated),
        source=f"{tenants.source}, minus the MPS server and the control daemon's client list",
        measured_at=tenants.measured_at,
        evidence={
            "note": "processes on this GPU outside MPS before the first cell, left as they were: what was measured is"
            " throughput beside them",
            "unresolved": unresolved_tenants(snapshot, gpu_uuid),
        },
        unknown_reason=None,
    )


def _tflops_by_cap(run: Run) -> Envelope[dict[str, float | None]]:
    measured = [cell for cell in run.cells if cell.state != "unknown"]
    dtype = _protocol(run).dtype
    evidence: dict[str, Any] = {
        "iters": run.plan.iters,
        "size": run.plan.size,
        "every_cell_self_managed": bool(measured) and len(measured) == len(run.cells),
        "sm_counts": _sm_counts(run),
    }
    evidence |= _lower_limit(run.last_permit)
    source = f"{dtype} matmul inside a managed MPS client"
    if not measured:
        return Envelope(
            value=None,
            state="unknown",
            source=source,
            measured_at=run.finished_at,
            evidence=evidence,
            unknown_reason=Reason.ALL_CELLS_FAILED.value,
        )
    return Envelope(
        value={cell.cap: cell.tflops for cell in run.cells},
        state=_state(simulated=run.permit.simulated),
        source=source,
        measured_at=max(cell.measured_at for cell in measured if cell.measured_at is not None),
        evidence=evidence,
        unknown_reason=None,
    )


def _lower_limit(permit: Permit) -> dict[str, Any]:
    """What makes every cap above it the same: the server's own percentage, else the default that it began with."""
    default = permit.daemon.default_active_thread_percentage
    server = permit.server.active_thread_percentage if permit.server is not None else None
    applies = default if server is None else server
    if applies is None or applies >= 100:
        return {}
    return {
        "default_active_thread_percentage": default,
        "server_active_thread_percentage": server,
        "default_note": (
            f"the {'control daemon' if server is None else 'server'} gives each client less than 100 %: the lower of it"
            " and the client's cap applies, which flattens the curve above it"
        ),
    }


def _sm_counts(run: Run) -> dict[str, Any]:
    """The device's own count beside what the 100 % cell saw: where they differ, something caps every client."""
    device = run.permit.gpu.gpu.sm_count
    full = next((cell.sm_count for cell in run.cells if cell.cap == "100"), None)
    agree = sm.as_expected(full, sm.expectation(device, "100")) if device is not None and full is not None else None
    return {"device": device, "seen_at_100_percent": full, "agree": agree}


# How `ServerLook` calls what `MpsFacts` says of the server.
_OF_THE_SERVER = {
    "start_ticks": "server_start_ticks",
    "uid": "server_uid",
    "multi_user": "multi_user",
    "server_state": "server_state",
    "active_thread_percentage": "server_active_thread_percentage",
}


def mps_facts(permit: Permit) -> MpsFacts:
    """The control daemon and server that were measured against."""
    server, daemon = permit.server, permit.daemon
    unknown = {name: reason for name, reason in daemon.unknown.items() if name in MpsFacts.__struct_fields__}
    if server is None:
        unknown |= dict.fromkeys(("server_pid", *_OF_THE_SERVER.values()), Reason.NO_SERVER)
    else:
        unknown |= {ours: server.unknown[its] for its, ours in _OF_THE_SERVER.items() if its in server.unknown}
    return MpsFacts(
        daemon=daemon.name,
        protocol=daemon.protocol,
        server_pid=permit.server_pid,
        server_start_ticks=permit.start_ticks,
        server_uid=server.uid if server else None,
        multi_user=server.multi_user if server else None,
        server_state=server.server_state if server else None,
        default_active_thread_percentage=daemon.default_active_thread_percentage,
        server_active_thread_percentage=server.active_thread_percentage if server else None,
        unknown=unknown,
    )
