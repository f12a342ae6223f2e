"""Whole looks: a control program and nvidia-smi that are real processes, a /proc of made-up ones."""

from __future__ import annotations

import gc
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mpswatch.changes import changes
from mpswatch.documents import Conditions, Gpu, GpuLook, GpuProcess, PollSnapshot, Reason, from_json, to_json
from mpswatch.gpu import GpuError, NvidiaSmiSource
from mpswatch.gpu.source import CONDITIONS, processes_known, processes_unknown
from mpswatch.poll import DaemonAddress, Poller
from mpswatch.proc import Processes

UUID = "GPU-d5186d3a-2601-5eeb-c6aa-b59b83ed0aa6"
STACK = {"servers": {"633": {"clients": [578, 577]}}}
ROWS = ((577, 636, True), (578, 636, True), (581, 658, False), (633, 66, False))


class Source:
    """A source in the test's hands: says what it is told, fails, or hangs until it is let go."""

    def __init__(self, name="nvml", rows=ROWS):
        self.name = name
        self.rows = rows
        self.error = None
        self.asked = 0
        self.let_go = threading.Event()
        self.hangs = False
        self.state = "measured"

    def look(self):
        self.asked += 1
        if self.hangs:
            self.let_go.wait(20)
        if self.error:
            raise self.error
        if isinstance(self.rows, Reason):
            processes = processes_unknown(self.rows, source=self.name, detail="told so")
        else:
            value = tuple(
                GpuProcess(pid=pid, used_memory_bytes=mib << 20, mps_client=mps, name="python3")
                for pid, mib, mps in self.rows
            )
            processes = processes_known(value, source=self.name, state=self.state, evidence={}, blind=False)
        return (
            GpuLook(gpu=Gpu(uuid=UUID, index=0, name="H200"), processes=processes, conditions=self.conditions(UUID)),
        )

    def conditions(self, _uuid):
        if self.hangs:
            self.let_go.wait(20)
        if self.error:
            raise self.error
        return Conditions(measured_at=datetime.now(UTC), source=self.name, sm_clock_mhz=1980)


@pytest.fixture
def host(tree, daemon):
    """The recorded host: one server, two managed services, one foreign tenant."""
    tree.server(633)
    for pid in (577, 578, 581):
        tree.add(pid, session=1, ticks=5000 + pid)
    daemon.play(STACK)
    return tree


def poller(tree, *daemons, sources, mps_deadline=5.0, gpu_deadline=5.0):
    return Poller(
        host="box",
        daemons=[DaemonAddress(name=daemon.directory.name, pipe_directory=daemon.directory) for daemon in daemons],
        control_program=daemons[0].program if daemons else "none",
        sources=sources,
        processes=Processes(tree.root),
        mps_deadline=mps_deadline,
        gpu_deadline=gpu_deadline,
    )


def kinds(snapshot):
    return {tenant.pid: tenant.kind for tenant in snapshot.tenants.value}


def said(snapshot, source):
    return next(look for look in snapshot.sources if look.source == source)


def test_the_recorded_host_end_to_end(host, daemon, recordings, tmp_path):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nexec cat {recordings}/nvidia-smi-q-x.two-managed-one-foreign.xml\n")
    program.chmod(0o755)
    smi = NvidiaSmiSource(str(program), deadline=5, processes=Processes(host.root))
    snapshot = poller(host, daemon, sources=[smi]).look()
    assert kinds(snapshot) == {577: "managed", 578: "managed", 581: "foreign", 633: "server"}
    assert snapshot.tenants.state == snapshot.gpus.state == "measured"
    assert snapshot.gpus.source == "nvidia-smi"
    assert snapshot.host == "box"
    assert (snapshot.simulated, snapshot.disagreements, snapshot.foreign_unknown) == (False, (), {})
    assert [(look.source, look.daemon, look.success) for look in snapshot.sources] == [
        ("mps", "pipe", True),
        ("nvidia-smi", "", True),
        ("proc", "", True),
    ]
    assert snapshot.started_at <= snapshot.finished_at
    assert from_json(to_json(snapshot), PollSnapshot) == snapshot


def test_a_second_look_confirms_who_newly_seems_foreign_and_then_never_again(host, daemon):
    source = Source()
    watch = poller(host, daemon, sources=[source])
    first = watch.look()
    assert source.asked == 2
    assert len(daemon.asked()) == 3, "one to find the server, one about it, one more look"
    second = watch.look()
    assert source.asked == 3
    assert len(daemon.asked()) == 4
    assert changes(first, second) == ()
    assert [t.first_seen_at for t in first.tenants.value] == [t.first_seen_at for t in second.tenants.value]


def test_limits_are_asked_at_the_first_look_and_known_at_the_next_which_does_not_ask(host, daemon):
    limited = {"clients": [578, 577], "percentage": "40.0", "limits": {UUID: "2G\n"}}
    daemon.play({"servers": {"633": limited}, "limits": {"0": "3G\n"}})
    watch = poller(host, daemon, sources=[Source()])
    first, second = watch.look(), watch.look()
    for snapshot in (first, second):
        (look,) = snapshot.daemons
        (server,) = look.servers.value
        assert (server.active_thread_percentage, server.memory_limits) == (40.0, {UUID: 2 << 30})
        assert (look.default_memory_limits, look.limits_asked_at) == ({UUID: 3 << 30}, first.daemons[0].limits_asked_at)
    asked = [any("pinned" in line for line in lines) for lines in daemon.asked()]
    assert asked == [True, True, False, False]  # by then the server is known; the second round confirms the foreign one
    assert not (daemon.directory / "violation").exists()


def test_limits_of_gpus_that_come_later_are_asked_then(host, daemon):
    daemon.play({"servers": {"633": {"clients": [], "limits": {UUID: "2G\n"}}}})
    source = Source(rows=())
    source.error = GpuError(Reason.NVML_ERROR, "not yet")
    watch = poller(host, daemon, sources=[source])
    (server,) = watch.look().daemons[0].servers.value
    assert (server.active_thread_percentage, server.memory_limits) == (100.0, {})
    source.error = None
    watch.look()  # the GPUs are looked at beside the daemons: these hear of them at the next look
    (server,) = watch.look().daemons[0].servers.value
    assert server.memory_limits == {UUID: 2 << 30}


def test_a_client_that_joins_between_two_lists_is_never_called_foreign(host, daemon):
    """The driver lists 600 already; the daemon was asked a moment before it joined."""
    host.add(600, session=1)
    joined = {"servers": {"633": {"clients": [577, 578, 600]}}}
    daemon.play(STACK, STACK, joined)
    source = Source(rows=(*ROWS, (600, 5, True)))
    snapshot = poller(host, daemon, sources=[source]).look()
    assert kinds(snapshot)[600] == "managed"
    assert snapshot.disagreements == ()


def test_a_disagreement_that_stays_is_told(host, daemon):
    host.add(600, session=1)
    source = Source(rows=(*ROWS, (600, 5, True)))
    watch = poller(host, daemon, sources=[source])
    (disagreement,) = watch.look().disagreements
    assert (disagreement.daemon, disagreement.gpu_uuid) == ("pipe", UUID)
    assert disagreement.only_in_driver_list == (600,)
    source.asked = 0
    assert watch.look().disagreements == (disagreement,)
    assert source.asked == 1, "an old doubt is not looked at twice"


def test_a_frozen_daemon_takes_nothing_else_down(host, daemon):
    watch = poller(host, daemon, sources=[Source()], mps_deadline=1.5)
    watch.look()
    daemon.play(STACK, mode="frozen")
    began = time.monotonic()
    snapshot = watch.look()
    assert time.monotonic() - began < 3
    assert snapshot.daemons[0].up_reason is Reason.DAEMON_SILENT
    assert kinds(snapshot) == {577: "unresolved", 578: "unresolved", 581: "foreign", 633: "server"}
    assert snapshot.foreign_unknown == {}
    assert said(snapshot, "mps").reason is Reason.DAEMON_SILENT
    assert said(snapshot, "nvml").success
    daemon.play(STACK)
    assert kinds(watch.look()) == {577: "managed", 578: "managed", 581: "foreign", 633: "server"}


def test_a_stuck_gpu_source_is_named_not_asked_again_and_takes_nothing_else_down(host, daemon):
    source = Source()
    watch = poller(host, daemon, sources=[source], gpu_deadline=0.05)
    source.hangs = True
    snapshot = watch.look()
    assert said(snapshot, "nvml").reason is Reason.SOURCE_STUCK
    assert snapshot.gpus.unknown_reason == snapshot.tenants.unknown_reason == "source_stuck"
    assert snapshot.daemons[0].servers.value[0].clients == (577, 578)
    began = time.monotonic()
    assert said(watch.look(), "nvml").reason is Reason.SOURCE_STUCK
    assert time.monotonic() - began < 1
    assert source.asked == 1, "it is not asked again until it comes back"
    source.hangs = False
    source.let_go.set()
    time.sleep(0.2)
    assert kinds(watch.look())[581] == "foreign"


def test_while_nvml_is_stuck_the_second_source_is_asked(host, daemon):
    stuck, second = Source(), Source("nvidia-smi")
    stuck.hangs = True
    snapshot = poller(host, daemon, sources=[stuck, second], gpu_deadline=0.05).look()
    assert snapshot.gpus.source == "nvidia-smi"
    assert [(look.source, look.success) for look in snapshot.sources[1:3]] == [("nvml", False), ("nvidia-smi", True)]
    assert kinds(snapshot)[581] == "foreign"
    stuck.let_go.set()


def test_without_any_source_of_gpus_the_tenants_are_unknown_for_the_first_ones_reason(host, daemon):
    one, two = Source(), Source("nvidia-smi")
    one.error = GpuError(Reason.NVML_MISSING, "no library")
    two.error = GpuError(Reason.NVIDIA_SMI_MISSING, "no program")
    snapshot = poller(host, daemon, sources=[one, two]).look()
    assert snapshot.gpus.unknown_reason == snapshot.tenants.unknown_reason == "nvml_missing"
    assert snapshot.gpus.evidence == {"nvml": "no library", "nvidia-smi": "no program"}
    assert snapshot.daemons[0].servers.value[0].clients == (577, 578)
    assert poller(host, daemon, sources=[]).look().gpus.unknown_reason == "no_gpu"


def test_a_blind_list_makes_tenants_unknown_and_not_absent(host, daemon):
    snapshot = poller(host, daemon, sources=[Source(rows=Reason.PID_NAMESPACE_BLIND)]).look()
    assert snapshot.tenants.value is None
    assert snapshot.tenants.unknown_reason == "pid_namespace_blind"
    assert snapshot.gpus.value[0].gpu.uuid == UUID
    assert snapshot.foreign_unknown == {UUID: Reason.PID_NAMESPACE_BLIND}


def test_a_list_without_anybody_is_looked_at_once_more_before_it_is_called_blind(host, daemon):
    """Asked a moment before the stack came up; then a list that stays so."""
    source = Source(rows=())
    rows = iter([(), ROWS])
    ask = source.look

    def later():
        source.rows = next(rows, ())
        return ask()

    source.look = later
    watch = poller(host, daemon, sources=[source])
    assert kinds(watch.look()) == {577: "managed", 578: "managed", 581: "foreign", 633: "server"}
    source.asked = 0
    for _ in range(2):
        snapshot = watch.look()
        assert (snapshot.tenants.value, snapshot.tenants.unknown_reason) == (None, "process_list_blind")
        assert snapshot.foreign_unknown == {UUID: Reason.PROCESS_LIST_BLIND}
        assert snapshot.disagreements == ()
    assert source.asked == 3, "an old doubt is not looked at twice"


def test_a_fault_of_our_own_in_one_source_is_an_internal_error_of_that_source(host, daemon):
    source = Source()
    source.error = ZeroDivisionError("ours")
    snapshot = poller(host, daemon, sources=[source]).look()
    assert said(snapshot, "nvml").reason is Reason.INTERNAL_ERROR
    assert "ZeroDivisionError" in said(snapshot, "nvml").detail
    assert snapshot.daemons[0].up is True


def test_two_daemons_are_asked_side_by_side(host, daemon, other_daemon):
    host.server(700)
    host.add(581_0, session=1)
    other_daemon.play({"servers": {"700": {"clients": [581]}}}, mode="honest")
    watch = poller(host, daemon, other_daemon, sources=[Source(rows=(*ROWS, (700, 66, False)))])
    snapshot = watch.look()
    assert {t.pid: (t.kind, t.daemon) for t in snapshot.tenants.value} == {
        577: ("managed", "pipe"),
        578: ("managed", "pipe"),
        581: ("managed", "other"),
        633: ("server", "pipe"),
        700: ("server", "other"),
    }
    other_daemon.play(mode="frozen")
    daemon.play(STACK, mode="frozen")
    slow = poller(host, daemon, other_daemon, sources=[Source()], mps_deadline=1.0)
    began = time.monotonic()
    slow.look()
    assert time.monotonic() - began < 1.9, "one after the other would take twice as long"


def test_without_daemons_everybody_is_foreign(host):
    snapshot = poller(host, sources=[Source()]).look()
    assert set(kinds(snapshot).values()) == {"foreign"}


def test_our_own_clients_are_known_by_the_lock(host, daemon):
    status = daemon.directory.stat()
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    host.lock(f"1: FLOCK  ADVISORY  WRITE 880 {place} 0 EOF")
    host.add(900, session=880)
    daemon.play({"servers": {"633": {"clients": [577, 578, 900]}}})
    snapshot = poller(host, daemon, sources=[Source(rows=(*ROWS, (900, 400, True)))]).look()
    assert kinds(snapshot) == {577: "managed", 578: "managed", 581: "foreign", 633: "server", 900: "ours"}
    assert snapshot.daemons[0].our_session == 880


def test_a_rehearsal_is_simulated_throughout(host, daemon):
    source = Source()
    source.state = "simulated"
    watch = poller(host, daemon, sources=[source])
    with socket.socket(socket.AF_UNIX) as server, tempfile.TemporaryDirectory() as short:
        (Path(short) / "pipe").symlink_to(daemon.directory)
        server.bind(f"{short}/pipe/rehearsal")
        snapshot = watch.look()
    assert snapshot.simulated
    states = {snapshot.gpus.state, snapshot.tenants.state, snapshot.daemons[0].servers.state}
    assert states == {"simulated"}


def test_a_light_look_at_one_daemon_asks_less_and_knows_the_servers(host, daemon):
    watch = poller(host, daemon, sources=[Source()])
    watch.look()
    daemon.play(STACK)
    look = watch.look_at_daemon("pipe")
    assert look.servers.value[0].clients == (577, 578)
    assert daemon.asked() == [
        ["get_server_list", "get_default_active_thread_percentage", "get_client_list 633", "get_server_status 633"]
    ]
    assert watch.look_at_daemon("pipe", with_contexts=True).servers.value[0].contexts == ()
    with pytest.raises(ValueError, match="no control daemon"):
        watch.look_at_daemon("nobody")


def address_of(daemon):
    return DaemonAddress(name=daemon.directory.name, pipe_directory=daemon.directory)


def test_a_daemon_that_comes_later_is_asked_from_then_on_and_what_is_known_of_the_first_stays(
    host, daemon, other_daemon
):
    watch = poller(host, daemon, sources=[Source()])
    watch.look()
    asked = len(daemon.asked())
    other_daemon.play({"servers": {}})
    watch.watch([address_of(daemon), address_of(other_daemon)])
    assert [look.name for look in watch.look().daemons] == ["pipe", "other"]
    assert len(daemon.asked()) == asked + 1, "its server is still known: one connection"


def test_a_daemon_that_is_dropped_is_asked_no_more_and_its_threads_end(host, daemon, other_daemon):
    other_daemon.play({"servers": {}})
    earlier = set(threading.enumerate())
    watch = poller(host, daemon, other_daemon, sources=[Source()])
    watch.look()
    watch.look_at_daemon("other")
    of_other = {thread for thread in threading.enumerate() if "mps other" in thread.name} - earlier
    assert len(of_other) == 2
    asked = len(other_daemon.asked())
    watch.watch([address_of(daemon)])
    assert [look.name for look in watch.look().daemons] == ["pipe"]
    assert len(other_daemon.asked()) == asked
    for thread in of_other:
        thread.join(5)
        assert not thread.is_alive()


def test_a_light_look_does_not_wait_for_a_poll_that_hangs(host, daemon):
    source = Source()
    source.hangs = True
    watch = poller(host, daemon, sources=[source], gpu_deadline=3.0)
    polling = threading.Thread(target=watch.look)
    polling.start()
    try:
        began = time.monotonic()
        assert watch.look_at_daemon("pipe").up is True
        assert time.monotonic() - began < 2
    finally:
        source.let_go.set()
        polling.join()


def test_conditions_never_raise(host):
    one, two = Source(), Source("nvidia-smi")
    watch = poller(host, sources=[one, two], gpu_deadline=0.05)
    assert watch.conditions(UUID).source == "nvml"
    one.error = GpuError(Reason.GPU_LOST, "gone")
    assert watch.conditions(UUID).source == "nvidia-smi"
    two.error = ValueError("ours")
    unknown = watch.conditions(UUID)
    assert unknown.unknown == dict.fromkeys(CONDITIONS, Reason.GPU_LOST)
    one.error, one.hangs = None, True
    assert set(watch.conditions(UUID).unknown.values()) == {Reason.SOURCE_STUCK}
    one.let_go.set()
    assert set(poller(host, sources=[]).conditions(UUID).unknown.values()) == {Reason.NO_GPU}


def test_tenants_keep_their_first_moment_through_a_blind_spell(host, daemon):
    source = Source()
    watch = poller(host, daemon, sources=[source])
    first = watch.look()
    source.rows = Reason.GPU_LOST
    watch.look()
    source.rows = ROWS
    again = watch.look()
    assert [t.first_seen_at for t in again.tenants.value] == [t.first_seen_at for t in first.tenants.value]


def test_many_threads_may_look_at_once(host, daemon):
    watch = poller(host, daemon, sources=[Source()])
    found = []
    threads = [threading.Thread(target=lambda: found.append(watch.look())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({tuple(sorted(kinds(snapshot).items())) for snapshot in found}) == 1


HUNG = """
import os, sys, time
from pathlib import Path
from mpswatch.gpu import NvmlSource
from mpswatch.poll import Poller
from mpswatch.proc import Processes
watch = Poller(host="h", daemons=[], control_program="x", sources=[NvmlSource(Processes())],
               processes=Processes(), mps_deadline=1, gpu_deadline=0.2)
for _ in range(2):
    began = time.monotonic()
    print(watch.look().gpus.unknown_reason, time.monotonic() - began < 1.5)
print(set(watch.conditions("GPU-x").unknown.values()) and "conditions", flush=True)
"""


@pytest.mark.part("gcc")
def test_a_real_nvml_call_that_never_returns_holds_neither_the_poll_nor_the_exit(tmp_path):
    stub = Path(__file__).parents[1] / "gpu_sources" / "stub_nvml.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "libnvidia-ml.so.1", stub], check=True)
    (tmp_path / "scenario").write_text("hang nvmlDeviceGetComputeRunningProcesses\n")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "STUB_NVML": str(tmp_path / "scenario")}
    printed = subprocess.run(
        [sys.executable, "-c", HUNG], env=environment, capture_output=True, text=True, timeout=20, check=False
    )
    assert printed.stdout.split("\n")[:3] == ["source_stuck True", "source_stuck True", "conditions"], printed.stderr
    assert printed.returncode == 0


def _descriptors():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _threads():
    return {thread for thread in threading.enumerate() if re.match("poll-|watched-", thread.name)}


def test_polls_leave_no_descriptors_behind_and_share_their_threads_which_end_with_the_poller(host, daemon):
    others = _threads()
    watch = poller(host, daemon, sources=[Source()])
    watch.look()
    before, threads = _descriptors(), _threads()
    for _ in range(5):
        watch.look()
    time.sleep(0.1)
    assert _descriptors() == before
    assert _threads() == threads
    del watch
    until = time.monotonic() + 5
    while _threads() - others and time.monotonic() < until:
        gc.collect()
        time.sleep(0.01)
    assert not _threads() - others
