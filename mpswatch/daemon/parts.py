"""The rooms below, made from the configuration. No part does anything yet."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Literal

from mpswatch.archive import Archive
from mpswatch.archive.interference import Interferences
from mpswatch.config import Config
from mpswatch.config.rules import expectations
from mpswatch.config.shape import DaemonEntry
from mpswatch.daemon.discovering import Discovering
from mpswatch.daemon.events import Events
from mpswatch.daemon.fault_logs import FaultLogs
from mpswatch.gpu import open_sources
from mpswatch.identity import Identities
from mpswatch.journal import Journal
from mpswatch.mps import is_rehearsal
from mpswatch.mps.discovery import log_directory
from mpswatch.poll import DaemonAddress, Poller
from mpswatch.proc import Processes
from mpswatch.sweep.matrix import Matrix
from mpswatch.sweep.pair import Window
from mpswatch.sweep.permit import Limits
from mpswatch.sweep.plan import Plan, Thorough
from mpswatch.sweep.runtime import ProcessRuntime, Runtime
from mpswatch.sweep.runtimes import CommandRuntime, ContainerRuntime


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What one configuration is made of. `simulated` is a property of the stack, and never changes."""

    config: Config
    simulated: bool
    addresses: tuple[DaemonAddress, ...]
    discovering: Discovering | None
    processes: Processes
    poller: Poller
    fault_logs: FaultLogs
    plan: Plan
    thorough: Plan
    limits: Limits
    archive: Archive
    interferences: Interferences
    journal: Journal
    events: Events

    def address(self, name: str) -> DaemonAddress:
        return next(address for address in self.addresses if address.name == name)

    def plan_of(self, name: str) -> Plan:
        """The plan called quick or thorough; for interference, what its clients have in common with a sweep's."""
        if name == "interference":
            return replace(self.plan, sweep_deadline=self.config.interference.deadline)
        return self.thorough if name == "thorough" else self.plan


def addresses(daemons: Sequence[DaemonEntry], processes: Processes) -> tuple[DaemonAddress, ...]:
    """The control daemons as the poll room names them: by configured name, else by pipe directory.

    Where nobody configured a log directory the daemon's own environment is asked, once.
    """
    return tuple(
        DaemonAddress(
            name=daemon.name or daemon.pipe_directory,
            pipe_directory=Path(daemon.pipe_directory),
            log_directory=(
                Path(daemon.log_directory)
                if daemon.log_directory is not None
                else log_directory(Path(daemon.pipe_directory), processes)
            ),
        )
        for daemon in daemons
    )


def make_parts(config: Config, *, simulated: bool, discovering: Discovering | None = None) -> Parts:
    """Everything but sockets, threads and the loop. `discovering` is one that has looked already."""
    processes = Processes()
    if config.daemons is not None:
        discovering, watched = None, addresses(config.daemons, processes)
    else:
        if discovering is None:
            discovering = Discovering(processes, rehearsals=simulated)
            discovering.look()
        watched = discovering.addresses
    patterns = expectations(config)
    poller = Poller(
        host=config.host,
        daemons=watched,
        control_program=config.mps.control_program,
        sources=open_sources(
            config.gpu.source, nvidia_smi=config.gpu.nvidia_smi, deadline=config.gpu.deadline, simulated=simulated
        ),
        processes=processes,
        mps_deadline=config.mps.deadline,
        gpu_deadline=config.gpu.deadline,
        identities=Identities(processes, root=Path(config.tenants.host_root), label_keys=patterns.label_keys),
        expectations=patterns,
    )
    return Parts(
        config=config,
        simulated=simulated,
        addresses=watched,
        discovering=discovering,
        processes=processes,
        poller=poller,
        fault_logs=FaultLogs(watched),
        plan=plan(config),
        thorough=thorough_plan(config),
        limits=limits(config),
        archive=archive(config, simulated=simulated),
        interferences=interferences(config, simulated=simulated),
        journal=Journal(Path(config.archive.directory)),
        events=Events(config.host, simulated=simulated),
    )


def remake_parts(before: Parts, config: Config) -> Parts:
    """The parts of a new configuration; what asks is kept where it is asked the same, with what it remembers."""
    parts = make_parts(config, simulated=before.simulated, discovering=before.discovering)
    asked = ("daemons", "gpu", "mps")
    if all(getattr(config, section) == getattr(before.config, section) for section in asked):
        return replace(parts, poller=before.poller, fault_logs=before.fault_logs)
    return parts


def any_rehearsal(config: Config) -> bool:
    """Whether what would be looked at is a rehearsal stack (the socket in its pipe directory alone says so)."""
    return any(is_rehearsal(Path(daemon.pipe_directory)) for daemon in config.daemons or ())


def plan(config: Config) -> Plan:
    sweep = config.sweep
    return Plan(
        caps=sweep.caps,
        size=sweep.size,
        iters=sweep.iters,
        dtype=sweep.dtype,
        cell_deadline=sweep.cell_deadline,
        sweep_deadline=sweep.deadline,
    )


def thorough_plan(config: Config) -> Plan:
    """The same sweep, with intervals."""
    settings = config.sweep.thorough
    return replace(
        plan(config),
        name="thorough",
        thorough=Thorough(
            passes=settings.passes,
            rest=settings.rest,
            settle_least=min(Thorough.settle_least, settings.settle_most),
            settle_most=settings.settle_most,
            sustain=settings.sustain,
            rounds_least=settings.rounds_least,
            rounds_most=settings.rounds_most,
            interval_width=settings.interval_width,
            budget=settings.budget,
        ),
    )


def limits(config: Config) -> Limits:
    sweep = config.sweep
    return Limits(
        client_uid=client_uid(config),
        stack_uid=sweep.stack_uid,
        settle=sweep.settle,
        context_limit=sweep.context_limit,
        headroom=sweep.headroom,
        max_utilization=sweep.max_utilization,
        fault_quiet=sweep.fault_quiet,
    )


def archive(config: Config, *, simulated: bool) -> Archive:
    kept = config.archive
    return Archive(
        Path(kept.directory),
        gzip=kept.gzip,
        keep_age=timedelta(seconds=kept.keep_age) if kept.keep_age is not None else None,
        keep_bytes=kept.keep_bytes,
        simulated=simulated,
    )


def interferences(config: Config, *, simulated: bool) -> Interferences:
    kept = config.archive
    return Interferences(
        Path(kept.directory),
        gzip=kept.gzip,
        keep_age=timedelta(seconds=kept.keep_age) if kept.keep_age is not None else None,
        simulated=simulated,
    )


def matrix(config: Config) -> Matrix:
    """What `mpswatch interference` measures beside what."""
    wanted = config.interference
    return Matrix(
        caps=wanted.caps,
        kinds=wanted.kinds,
        mixed_cap=str(wanted.mixed_cap),
        window=Window(settle=wanted.settle, length=wanted.window),
    )


def client_python(config: Config) -> str:
    """The interpreter that is to have torch: the configured one, else the one that runs us."""
    return config.sweep.client.python or sys.executable


def runtime(config: Config, client: Path, *, simulated: bool) -> Runtime:
    """How the measuring client is started; `client` is the zipapp from `client_zipapp`."""
    settings = config.sweep.client
    backend: Literal["torch", "numpy"] = "numpy" if simulated else "torch"
    uid = client_uid(config)
    if settings.runtime == "process":
        return ProcessRuntime(
            python=client_python(config),
            client=client,
            backend=backend,
            environment=settings.environment,
            uid=settings.uid,
        )
    if settings.runtime == "command":
        return CommandRuntime(
            command=settings.command, client=client, uid=uid, backend=backend, environment=settings.environment
        )
    return ContainerRuntime(
        name=settings.runtime,
        client=client,
        uid=uid,
        image=settings.image,
        container=settings.container,
        program=settings.program,
        python=settings.python or "python3",
        backend=backend,
        arguments=settings.arguments,
        environment=settings.environment,
    )


def client_uid(config: Config) -> int:
    """Whom the measuring client runs as."""
    return os.geteuid() if config.sweep.client.uid is None else config.sweep.client.uid
