"""A desk: a control daemon's list kept as files of real processes, and everything a sweep asks of the outside."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mpswatch.documents import (
    Conditions,
    DaemonLook,
    Envelope,
    Fact,
    Gpu,
    GpuLook,
    InterferenceDocument,
    PollSnapshot,
    Reason,
    ServerLook,
    SweepDocument,
    Tenant,
)
from mpswatch.gpu import open_sources
from mpswatch.poll import DaemonAddress, Poller
from mpswatch.proc import Processes
from mpswatch.process.bundle import client_zipapp
from mpswatch.rehearsal import Stack
from mpswatch.sweep.interference import run_interference
from mpswatch.sweep.matrix import Matrix
from mpswatch.sweep.permit import Limits, Refusal
from mpswatch.sweep.plan import Plan
from mpswatch.sweep.ports import Ports
from mpswatch.sweep.progress import Progress
from mpswatch.sweep.run import run_sweep
from mpswatch.sweep.runtime import ProcessRuntime
from mpswatch.sweep.stop import Stop

HERE = Path(__file__).parent
GPU = "GPU-d5186d3a-2601-5eeb-c6aa-b59b83ed0aa6"


def known(value: Any, source: str = "test") -> Envelope[Any]:
    return Envelope(
        value=value, state="measured", source=source, measured_at=datetime.now(UTC), evidence={}, unknown_reason=None
    )


def unknown(reason: Reason) -> Envelope[Any]:
    return Envelope(
        value=None,
        state="unknown",
        source="test",
        measured_at=datetime.now(UTC),
        evidence={},
        unknown_reason=reason.value,
    )


def conditions(**changes: Any) -> Conditions:
    told = {"sm_clock_mhz": 1980, "power_watts": 130.0, "memory_free_bytes": 100 << 30, "utilization_ratio": 0.02}
    return Conditions(measured_at=datetime.now(UTC), source="nvml", **{**told, **changes})


def server_look(**changes: Any) -> ServerLook:
    told = {
        "pid": 633,
        "start_ticks": 1000,
        "age_seconds": 3600.0,
        "uid": os.geteuid(),
        "multi_user": False,
        "server_state": "ACTIVE",
        "clients": (577, 578),
    }
    return ServerLook(**{**told, **changes})


def daemon_look(*servers: ServerLook, **changes: Any) -> DaemonLook:
    told: dict[str, Any] = {
        "name": "default",
        "pipe_directory": "/tmp/nvidia-mps",
        "up": True,
        "protocol": "2",
        "default_active_thread_percentage": 100.0,
        "servers": known(servers),
    }
    return DaemonLook(**{**told, **changes})


def snapshot(look: DaemonLook, **changes: Any) -> PollSnapshot:
    now = datetime.now(UTC)
    gpu = Gpu(uuid=GPU, index=0, name="NVIDIA H200", sm_count=132, mig_enabled=False)
    told: dict[str, Any] = {
        "host": "here",
        "started_at": now,
        "finished_at": now,
        "simulated": False,
        "daemons": (look,),
        "gpus": known((GpuLook(gpu=gpu, processes=known(()), conditions=conditions()),)),
        "tenants": known(()),
        "disagreements": (),
        "sources": (),
    }
    return PollSnapshot(**{**told, **changes})


@dataclass
class Address:
    name: str
    pipe_directory: Path


@dataclass
class Desk:
    """The outside of a sweep. `server` is a real process; `faults` are FAKE's."""

    directory: Path
    server: subprocess.Popen[bytes]
    processes: Processes = field(default_factory=Processes)
    facts: list[Fact] = field(default_factory=list)
    steps: list[Progress] = field(default_factory=list)
    logged: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    looks: int = 0
    server_changes: dict[str, Any] = field(default_factory=dict)
    daemon_changes: dict[str, Any] = field(default_factory=dict)
    gpu_changes: dict[str, Any] = field(default_factory=dict)
    snapshot_changes: dict[str, Any] = field(default_factory=dict)
    plan: Plan = field(
        default_factory=lambda: Plan(
            caps=("100", "50"),
            size=256,
            launch_deadline=5.0,
            cell_deadline=3.0,
            join_deadline=0.2,
            drain_deadline=5.0,
            sweep_deadline=20.0,
        )
    )
    limits: Limits = field(default_factory=lambda: Limits(client_uid=os.geteuid(), settle=0))
    stop: Stop = field(default_factory=Stop)
    watch: Callable[[Progress], None] | None = None
    no_server: bool = False

    def add_client(self) -> subprocess.Popen[bytes]:
        """A service on the list that is not ours."""
        service = subprocess.Popen(["sleep", "60"], start_new_session=True)
        (self.directory / "clients" / str(service.pid)).touch()
        return service

    def clients(self) -> tuple[int, ...]:
        listed = [int(path.name) for path in (self.directory / "clients").iterdir()]
        return tuple(sorted(pid for pid in listed if self.processes.start_ticks(pid) is not None))

    def look_at_daemon(self) -> DaemonLook:
        self.looks += 1
        changes = {"pipe_directory": str(self.directory), **self.daemon_changes}
        others = [int(path.name) for path in (self.directory / "others").iterdir()]
        servers = [self._server(self.server.pid, self.clients())]
        if others:
            servers = [self._server(os.getpid(), tuple(others))]
        if self.no_server and not self.clients():
            servers = []
        return daemon_look(*servers, **changes)

    def _server(self, pid: int, clients: tuple[int, ...]) -> ServerLook:
        told = {"pid": pid, "start_ticks": self.processes.start_ticks(pid), "clients": clients}
        return server_look(**{**told, **self.server_changes})

    def look(self) -> PollSnapshot:
        whole = snapshot(self.look_at_daemon(), **self.snapshot_changes)
        if not self.gpu_changes:
            return whole
        (look,) = whole.gpus.value or ()
        changed = msgspec.structs.replace(look, gpu=msgspec.structs.replace(look.gpu, **self.gpu_changes))
        return msgspec.structs.replace(whole, gpus=known((changed,)))

    def sweep(self, faults: str = "", **plan: Any) -> SweepDocument | Refusal:
        runtime = ProcessRuntime(
            python=sys.executable, client=HERE / "fake_launcher.py", environment={"FAKE": faults} if faults else {}
        )
        return self.sweep_with(runtime, **plan)

    def sweep_with(self, runtime: Any, **plan: Any) -> SweepDocument | Refusal:
        ports = Ports(
            look=self.look,
            look_at_daemon=self.look_at_daemon,
            conditions=lambda _uuid: conditions(),
            processes=self.processes,
            runtime=runtime,
            record=self.facts.append,
            log=lambda event, **fields: self.logged.append((event, fields)),
        )
        return run_sweep(
            plan=replace(self.plan, **plan),
            daemon=Address("default", self.directory),
            gpu_uuid=GPU,
            host="here",
            limits=self.limits,
            ports=ports,
            stop=self.stop,
            trigger="test",
            progress=self.watch or self.steps.append,
        )

    def notes(self) -> list[str]:
        path = self.directory / "notes"
        return path.read_text().splitlines() if path.exists() else []

    def launchers(self) -> list[int]:
        return [int(note.split()[1]) for note in self.notes() if note.startswith("launcher ")]

    def ours_alive(self) -> list[int]:
        """Processes of our launchers' sessions that still live."""
        launchers = self.launchers()
        if not launchers:
            return []
        there = self.processes.identities(int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
        return [found.pid for found in there.values() if found.session in launchers and found.state != "Z"]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    (tmp_path / "clients").mkdir()
    (tmp_path / "others").mkdir()
    server = subprocess.Popen(["sleep", "300"], start_new_session=True)
    desk = Desk(tmp_path, server)
    service = desk.add_client()
    yield desk
    for process in (server, service):
        process.kill()
        process.wait()
    for pid in desk.ours_alive():
        os.kill(pid, 9)  # what a test left stuck on purpose
    until = time.monotonic() + 2
    while desk.ours_alive() and time.monotonic() < until:
        time.sleep(0.01)


class Build:
    """Builders of looks and snapshots, for tests of pure functions."""

    gpu_uuid = GPU

    known = staticmethod(known)
    unknown = staticmethod(unknown)
    conditions = staticmethod(conditions)
    server = staticmethod(server_look)
    daemon = staticmethod(daemon_look)
    snapshot = staticmethod(snapshot)

    def gpu(self, *, now: Conditions | None = None, **changes: Any) -> Envelope[tuple[GpuLook, ...]]:
        told = {"uuid": GPU, "index": 0, "name": "NVIDIA H200", "sm_count": 132, "mig_enabled": False}
        return known((GpuLook(gpu=Gpu(**{**told, **changes}), processes=known(()), conditions=now or conditions()),))

    def tenant(self, **changes: Any) -> Tenant:
        told = {
            "pid": 581,
            "start_ticks": 7,
            "gpu_uuid": GPU,
            "kind": "foreign",
            "process_name": "~/train.py",
            "used_memory_bytes": 689963008,
        }
        return Tenant(**{**told, **changes})


@pytest.fixture
def build() -> Build:
    return Build()


@dataclass
class Room:
    """A rehearsed stack with two services and one foreign tenant, and what sweeps it."""

    stack: Stack
    client: Path
    processes: Processes = field(default_factory=Processes)
    facts: list[Fact] = field(default_factory=list)
    stop: Stop = field(default_factory=Stop)
    limits: Limits = field(default_factory=lambda: Limits(client_uid=os.geteuid(), settle=0))
    services: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.address = DaemonAddress(name="default", pipe_directory=self.stack.pipe_directory)
        self.poller = Poller(
            host="here",
            daemons=[self.address],
            control_program=str(self.stack.control_program),
            sources=open_sources("auto", nvidia_smi=str(self.stack.nvidia_smi), deadline=5, simulated=True),
            processes=self.processes,
            mps_deadline=1.0,
            gpu_deadline=5.0,
        )

    def sweep(self, watch: Any = None, **plan: Any) -> SweepDocument | Refusal:
        return run_sweep(plan=self._plan(**plan), **self._told(watch))

    def interference(self, watch: Any = None, *, matrix: Matrix, **plan: Any) -> InterferenceDocument | Refusal:
        return run_interference(matrix=matrix, plan=self._plan(**plan), **self._told(watch))

    def _plan(self, **plan: Any) -> Plan:
        settings = Plan(caps=("100", "50"), size=96, iters=12, join_deadline=0.3, drain_deadline=5.0)
        return replace(settings, **plan)

    def _told(self, watch: Any) -> dict[str, Any]:
        snapshot = self.poller.look()
        assert snapshot.gpus.value is not None
        seen: list[Progress] = []
        return {
            "daemon": self.address,
            "gpu_uuid": snapshot.gpus.value[0].gpu.uuid,
            "host": "here",
            "limits": self.limits,
            "ports": Ports(
                look=self.poller.look,
                look_at_daemon=lambda: self.poller.look_at_daemon("default"),
                conditions=self.poller.conditions,
                processes=self.processes,
                runtime=ProcessRuntime(python=sys.executable, client=self.client, backend="numpy"),
                record=self.facts.append,
            ),
            "stop": self.stop,
            "trigger": "test",
            "progress": watch or seen.append,
        }

    def nobody_harmed(self) -> bool:
        return self.stack.harmed_neighbours() == [] and self.stack.unsafe_ends() == []

    def free(self, seconds: float = 5.0) -> bool:
        """Whether the lock on the pipe directory is free, soon: the last client of ours is gone."""
        until = time.monotonic() + seconds
        while self.processes.flock_holders(self.address.pipe_directory):
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
        return True


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return client_zipapp(tmp_path_factory.mktemp("client"))


@pytest.fixture
def room(tmp_path: Path, client: Path) -> Iterator[Room]:
    with Stack(tmp_path / "stack") as stack:
        room = Room(stack, client)
        room.services = [stack.add_service("chat", memory_mib=636), stack.add_service("embedding", memory_mib=412)]
        stack.add_foreign("notebook", 658)
        yield room
