"""Units, containers, users, escaped services and a client that waits: real processes in real cgroups, end to end."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from mpswatch.changes import changes
from mpswatch.documents import Reason
from mpswatch.expectations import Expectation, Expectations, Pattern, Welcome
from mpswatch.gpu import open_sources
from mpswatch.identity import Identities
from mpswatch.poll import DaemonAddress, Poller
from mpswatch.proc import Processes
from mpswatch.rehearsal.stack import Stack
from mpswatch.rehearsal.tenants import hierarchies
from mpswatch.sweep.permit import Circumstances, Limits, Refusal
from mpswatch.sweep.preflight import decide

ID = "a3f1" * 16
RECORDED = Path(__file__).parent / "trees/kubernetes-containerd-recorded/host"
RECORDED_SERVER = "bfa3039c24f79d887ac4f495cba483c5acfc9f8a57473fcabaac2cc139ff3239"
EXPECTED = Expectations(
    expected=(Expectation(name="embedder", pattern=Pattern(wanted={"command": "*/srv/embedder/*"}), minimum=1),),
    welcome=(Welcome(name="monitoring", patterns=(Pattern(wanted={"command": "*/srv/exporter/*"}),)),),
)

needs_cgroups = pytest.mark.skipif(not hierarchies(), reason="no cgroup hierarchy may be written here")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="other users' processes can only be started by root")


@pytest.fixture
def stack():
    with tempfile.TemporaryDirectory(prefix="mw-") as folder:
        Path(folder).chmod(0o755)
        with Stack(f"{folder}/s", server_uid=os.getuid()) as running:
            yield running


@pytest.fixture
def poller(stack):
    return polled(stack, EXPECTED)


def polled(stack, expectations, identities=None):
    return Poller(
        host="h",
        daemons=[DaemonAddress(name="default", pipe_directory=stack.pipe_directory, log_directory=stack.log_directory)],
        control_program=str(stack.control_program),
        sources=open_sources("nvidia-smi", nvidia_smi=str(stack.nvidia_smi), deadline=10, simulated=True),
        processes=Processes(),
        mps_deadline=10,
        gpu_deadline=10,
        expectations=expectations,
        identities=identities,
    )


def by_pid(snapshot):
    return {tenant.pid: tenant for tenant in snapshot.tenants.value}


@needs_cgroups
def test_tenants_are_known_by_unit_container_and_pod(stack, poller):
    unit = stack.add_service("a", cgroup="/system.slice/mpswatch-test.service")
    box = stack.add_service("b", cgroup=f"/system.slice/docker-{ID}.scope", namespaced=True)
    pod = "kubepods-pod6d3f2c1e_8a4b_4c5d_9e7f_1a2b3c4d5e6f.slice"
    pod = stack.add_foreign("c", cgroup=f"/kubepods.slice/{pod}/cri-containerd-{ID}.scope")
    found = by_pid(poller.look())
    assert found[unit].identity.unit == "mpswatch-test.service"
    assert (found[box].identity.container_runtime, found[box].identity.container_id) == ("docker", ID)
    assert found[pod].identity.pod_uid == "6d3f2c1e-8a4b-4c5d-9e7f-1a2b3c4d5e6f"
    assert (found[pod].kind, found[box].kind) == ("foreign", "managed")


@needs_cgroups
def test_a_pods_label_tells_that_its_process_has_escaped_and_without_the_file_nobody_says_it_has_not(stack, tmp_path):
    by_label = Pattern(wanted={"label": "app=embedder", "namespace": "search"})
    what = Expectations(expected=(Expectation(name="embedder", pattern=by_label, minimum=1),))
    group = f"/kubepods/burstable/pod6d3f2c1e-8a4b-4c5d-9e7f-1a2b3c4d5e6f/{RECORDED_SERVER}"
    inside = stack.add_service("a", cgroup=group)
    outside = stack.add_foreign("b", cgroup=group)
    shutil.copytree(RECORDED, tmp_path / "host")
    for database, expected in ((True, (2, 1, 1, None)), (False, (0, 0, 0, Reason.NOT_RECORDED))):
        if not database:
            shutil.rmtree(tmp_path / "host/var")
        now = polled(stack, what, Identities(Processes(), root=tmp_path / "host", label_keys=what.label_keys)).look()
        (look,) = now.expectations
        assert (look.matched, look.managed, look.escaped, look.unknown_reason) == expected
        undecided = {tenant.pid for tenant in now.tenants.value if tenant.undecided == ("embedder",)}
        assert undecided == (set() if database else {inside, outside})


def test_a_service_outside_mps_has_escaped_and_the_journal_says_so_once(stack, poller):
    stack.add_service("embedder")
    stack.add_foreign("exporter")
    before = poller.look()
    escaped = stack.add_service("embedder", escaped=True)
    now = poller.look()
    (embedder, monitoring) = now.expectations
    assert (embedder.managed, embedder.escaped, monitoring.matched) == (1, 1, 1)
    events = {event.kind: event for event in changes(before, now)}
    assert events.keys() == {"tenant_appeared", "service_escaped"}
    assert events["service_escaped"].details["pid"] == escaped
    assert "expected as embedder" in events["tenant_appeared"].message
    assert events["tenant_appeared"].details["identity"]["command_line"].endswith("/srv/embedder/main.py")
    assert changes(now, poller.look()) == ()


def test_a_service_that_is_started_while_the_control_daemon_is_down_shows_as_escaped(stack, poller):
    stack.tell("die", what="daemon")
    stack.add_service("embedder", escaped=True)
    now = poller.look()
    assert now.daemons[0].up is False
    (embedder, _) = now.expectations
    assert (embedder.escaped, embedder.managed, embedder.unknown_reason) == (1, 0, None)


@needs_root
def test_a_client_of_another_uid_that_waits_is_seen_told_and_refuses_a_sweep_even_once_it_is_dead(stack, poller):
    stack.add_service("embedder")
    before = poller.look()
    assert before.daemons[0].waiting.clients == ()
    pid = stack.tell("queue", uid=1001)["pid"]
    now = _until(poller, lambda waiting: waiting.shutdown_armed)
    assert [(client.pid, client.uid) for client in now.daemons[0].waiting.clients] == [(pid, 1001)]
    (event,) = [event for event in changes(before, now) if event.kind == "client_waiting"]
    assert (event.reason, event.details["clients"]) == (Reason.FOREIGN_CLIENT_WAITING, [{"pid": pid, "uid": 1001}])
    _is_refused(now)
    stack.tell("drain")
    now = _until(poller, lambda waiting: not waiting.clients)
    assert now.daemons[0].waiting.shutdown_armed
    _is_refused(now)


def _until(poller, holds):
    end = time.monotonic() + 10
    while not holds((snapshot := poller.look()).daemons[0].waiting):
        assert time.monotonic() < end, snapshot.daemons[0].waiting
        time.sleep(0.05)
    return snapshot


def _is_refused(snapshot):
    decision = decide(
        snapshot,
        daemon="default",
        gpu_uuid=snapshot.gpus.value[0].gpu.uuid,
        limits=Limits(client_uid=os.getuid(), settle=0),
        circumstances=Circumstances(need_bytes=0),
    )
    assert isinstance(decision, Refusal)
    assert decision.reason is Reason.FOREIGN_CLIENT_WAITING
