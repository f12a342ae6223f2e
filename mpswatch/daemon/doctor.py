"""What this host has and lacks, line by line, each with its remedy. Asks everything once and changes nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from mpswatch.archive import ArchiveError
from mpswatch.config import Config
from mpswatch.config.rules import expectations
from mpswatch.daemon.client_check import check_client
from mpswatch.daemon.doctor_limits import limits
from mpswatch.daemon.doctor_tenants import labels, patterns, waiting
from mpswatch.daemon.fault_logs import FaultLook, known_fault_age
from mpswatch.daemon.finding import Line
from mpswatch.daemon.hold import hold
from mpswatch.daemon.parts import Parts
from mpswatch.daemon.pause import is_paused
from mpswatch.daemon.port_check import port_lines
from mpswatch.daemon.verdict import Verdict, verdict
from mpswatch.documents import WORKING_STATES, DaemonLook, Event, PollSnapshot, Reason, ServerLook
from mpswatch.evidence.partitions import partitioned
from mpswatch.identity.sources import label_sources
from mpswatch.sweep.circumstances import available_memory
from mpswatch.sweep.permit import Refusal


class Report(NamedTuple):
    verdict: Verdict
    lines: tuple[Line, ...]


def examine(parts: Parts) -> Report:
    """One poll, and everything beside it that a sweep or the daemon needs."""
    config = parts.config
    snapshot = parts.poller.look()
    client = check_client(config, simulated=parts.simulated)
    earlier, logs = _earlier(parts), parts.fault_logs.look()
    said = verdict(
        parts,
        snapshot,
        held=hold(config.sweep, paused=is_paused(parts.archive.directory), asked_for=False, now=datetime.now(UTC)),
        client=client if isinstance(client, Refusal) else None,
        last_fault_age=lambda daemon: known_fault_age(earlier, logs, daemon),
        available_memory=available_memory(Path("/proc/meminfo")),
    )
    lines = [
        *_stack(parts),
        *_control_program(config),
        *(line for look in snapshot.daemons for line in _daemon(look, parts.limits.client_uid)),
        *_logs(parts, logs),
        *_namespace(parts),
        *_sources(snapshot),
        *patterns(snapshot),
        *labels(expectations(config), snapshot, label_sources(Path(config.tenants.host_root))),
        _client(client),
        *_archive(parts),
        *port_lines(config),
    ]
    return Report(said, tuple(lines))


def _earlier(parts: Parts) -> tuple[Event, ...]:
    try:
        return parts.journal.read(limit=200)
    except ArchiveError:
        return ()


def _stack(parts: Parts) -> Iterator[Line]:
    if parts.simulated:
        yield Line(
            "note", "stack", "a rehearsal: nothing here is measured", "`mpswatch run` refuses it; use mpswatch demo"
        )


def _control_program(config: Config) -> Iterator[Line]:
    program = config.mps.control_program
    found = shutil.which(program)
    if found is None:
        yield Line(
            "mend",
            "control program",
            f"{program} is not on PATH",
            "install the driver's MPS (in containers: NVIDIA_DRIVER_CAPABILITIES=compute,utility), "
            "or set mps.control_program",
        )
    else:
        yield Line("good", "control program", found)


def _daemon(look: DaemonLook, ours: int) -> Iterator[Line]:
    directory = Path(look.pipe_directory)
    if not directory.is_dir():
        yield Line(
            "mend",
            "pipe directory",
            f"{directory} is not there",
            "set daemons[].pipe_directory or CUDA_MPS_PIPE_DIRECTORY; in a container mount it",
        )
    elif not os.access(directory, os.R_OK | os.X_OK):
        yield Line("mend", "pipe directory", f"{directory} may not be read", "run mpswatch as the stack's uid")
    else:
        yield Line("good", "pipe directory", str(directory))
    if look.up is not True:
        reason = look.up_reason or Reason.DAEMON_SILENT
        remedy = "start it: nvidia-cuda-mps-control -d" if reason is Reason.DAEMON_ABSENT else None
        yield Line("mend", "control daemon", f"{look.name}: {reason}", remedy)
        return
    yield Line("good", "control daemon", f"{look.name} answers")
    if look.protocol == "3":
        yield Line(
            "note",
            "protocol",
            f"{look.name} speaks MPS protocol 3, which mpswatch reads by NVIDIA's documentation and has never met",
            "compare `mpswatch poll` with `nvidia-cuda-mps-control client list --all`; no sweep runs under it",
        )
    yield from limits(look)
    servers = look.servers.value
    if servers is None:
        yield Line("mend", "MPS server", f"unknown: {look.servers.unknown_reason}")
    elif not servers:
        yield Line(
            "note",
            "MPS server",
            "none runs: the next client decides whose it is",
            "start one of the stack's services, or set sweep.stack_uid",
        )
    for server in servers or ():
        yield _server(server, ours)
    yield from waiting(look)


def _server(server: ServerLook, ours: int) -> Line:

    state = server.server_state or f"state unknown ({server.unknown.get('server_state', 'no reason')})"
    age = f", {server.age_seconds:.0f} s old" if server.age_seconds is not None else ""
    clients = f", {len(server.clients)} clients" if server.clients is not None else ""
    who = "every uid" if server.multi_user else f"uid {server.uid if server.uid is not None else 'unknown'}"
    detail = f"pid {server.pid} serves {who}, {state}{age}{clients}; the measuring client would be uid {ours}"
    if server.multi_user or server.uid == ours:
        return Line("good" if server.server_state in WORKING_STATES else "mend", "MPS server", detail)
    remedy = (
        f"run mpswatch as uid {server.uid}" if server.uid is not None else "look at it from the host's pid namespace"
    )
    return Line("mend", "MPS server", detail, f"{remedy}, or the control daemon with -multiuser-server")


def _logs(parts: Parts, logs: FaultLook) -> Iterator[Line]:
    for name, found in logs.items():
        directory = parts.address(name).log_directory
        if isinstance(found, Reason):
            where = (
                f"{directory}/server.log of {name}" if directory is not None else f"no log directory of {name} is known"
            )
            yield Line(
                "note",
                "server.log",
                f"{where}: {found}; faults that are over before the next poll are not seen",
                "set daemons[].log_directory, and let mpswatch's user read it",
            )
        else:
            yield Line("good", "server.log", f"{directory} of {name} is read")


def _namespace(parts: Parts) -> Iterator[Line]:
    sees = parts.processes.sees_host_pids()
    if sees is False:
        yield Line(
            "note" if parts.simulated else "mend",
            "pid namespace",
            "not the host's: the driver lists no process in here, without an error",
            "give the container the host's pid namespace (docker: --pid=host, Kubernetes: hostPID: true)",
        )
    elif sees is None:
        yield Line("note", "pid namespace", "unknown: /proc/self/ns/pid cannot be read")
    else:
        yield Line("good", "pid namespace", "the host's")


def _sources(snapshot: PollSnapshot) -> Iterator[Line]:
    remedies = {
        Reason.NVML_MISSING: "install the driver's libnvidia-ml.so.1; in containers give the utility capability",
        Reason.NVML_MISMATCH: "library and kernel module differ: reboot, or reload the module after the update",
        Reason.NVIDIA_SMI_MISSING: "install nvidia-smi, or set gpu.nvidia_smi",
    }
    answered = any(look.success for look in snapshot.sources if look.source in {"nvml", "nvidia-smi"})
    for look in snapshot.sources:
        if look.source in {"nvml", "nvidia-smi"}:
            if look.success:
                gpus = ", ".join(f"{gpu.gpu.name} {gpu.gpu.uuid}" for gpu in snapshot.gpus.value or ()) or "no GPU"
                yield Line("good", look.source, gpus)
            else:
                remedy = remedies.get(look.reason) if look.reason is not None else None
                yield Line("note" if answered else "mend", look.source, f"{look.reason}: {look.detail}", remedy)
    for gpu in snapshot.gpus.value or ():
        mode = gpu.gpu.compute_mode
        if mode is not None and mode != "default":
            detail = f"{gpu.gpu.uuid} is in mode {mode}: nobody can compute beside MPS, so foreign tenants cannot come"
            yield Line("note" if mode == "exclusive_process" else "mend", "compute mode", detail)
    for line in partitioned(snapshot):
        yield Line("note", "MIG", line)
    for uuid, reason in snapshot.foreign_unknown.items():
        yield Line("mend", "tenants", f"unknown on {uuid}: {reason}")


def _client(client: Refusal | str) -> Line:
    if isinstance(client, str):
        return Line("good", "measuring client", client)
    return Line("mend", "measuring client", client.detail, client.remedy)


def _archive(parts: Parts) -> Iterator[Line]:
    directory = parts.archive.directory
    fault = parts.archive.writable()
    if fault is None:
        yield Line("good", "archive", f"{directory} can be written")
    else:
        yield Line(
            "mend", "archive", fault.detail, fault.remedy or "name a directory that can be written with --archive"
        )
    if is_paused(directory):
        yield Line("mend", "pause", "sweeps are paused", "mpswatch resume")
