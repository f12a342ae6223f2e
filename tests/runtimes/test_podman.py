"""The real podman, on an overlay of this host's own root: a client that is managed, known, and left to drain."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from mpswatch.documents import Reason, SweepDocument
from mpswatch.identity import Identities
from mpswatch.proc import Processes
from mpswatch.sweep import progress as steps
from mpswatch.sweep.permit import Refusal
from mpswatch.sweep.runtimes import ContainerRuntime

pytestmark = [
    pytest.mark.part("podman", "runc"),
    pytest.mark.skipif(os.geteuid() != 0, reason="an overlay of the root takes root"),
]

OPTIONS = ("--ulimit", "nofile=20000:20000", "--ulimit", "nproc=32768:32768", "--rootfs")
ROOT = "/:O"


@pytest.fixture
def podman(tmp_path):
    """podman as it works here (real-parts: runc and cgroupfs)."""
    program = tmp_path / "podman"
    program.write_text('#!/bin/sh\nexec podman --runtime runc --cgroup-manager cgroupfs "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


@pytest.fixture
def runtime(client, podman):
    def made(**settings):
        where = {} if "container" in settings else {"image": ROOT, "arguments": OPTIONS}
        known = {"name": "podman", "client": client, "uid": 0, "program": podman, "python": sys.executable}
        return ContainerRuntime(**(known | {"backend": "numpy"} | where | settings))

    return made


@pytest.fixture
def container(room, podman):
    """A running container that has the pipe directory."""
    name = f"mpswatch-test-{os.getpid()}"
    pipe = room.stack.pipe_directory
    options = [
        "--ulimit",
        "nofile=20000:20000",
        "--ulimit",
        "nproc=32768:32768",
        "-v",
        f"{pipe}:{pipe}",
        "--network=none",
    ]
    argv = [podman, "run", "-d", "--rm", "--name", name, *options, "--rootfs", ROOT, "sleep", "300"]
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
    yield name
    subprocess.run([podman, "rm", "-f", "-t", "0", name], check=False, capture_output=True, timeout=60)


def is_complete(swept):
    assert isinstance(swept, SweepDocument), swept
    assert swept.complete_sweep, swept.partial_run_note
    assert all(cell.self_was_managed and cell.client_pid_is_namespaced for cell in swept.cells)
    return swept


def test_a_sweep_in_a_fresh_container(room, runtime):
    swept = is_complete(room.sweep_with(runtime()))
    assert swept.protocol.client_runtime.startswith("podman run ")
    assert room.nobody_harmed()
    assert room.free(20)


def test_a_sweep_inside_a_running_container_that_goes_on_running(room, runtime, container, podman):
    is_complete(room.sweep_with(runtime(container=container)))
    assert room.nobody_harmed()
    assert room.free(20)
    state = subprocess.run([podman, "inspect", "-f", "{{.State.Running}}", container], capture_output=True, check=True)
    assert state.stdout.strip() == b"true"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_whatever_becomes_of_podman_in_mid_cell_the_client_drains_and_leaves(number, room, runtime):
    made = runtime()

    def watch(step):
        if isinstance(step, steps.CellMeasuring):
            (program,) = made.pipes
            with contextlib.suppress(ProcessLookupError):
                os.kill(program, number)

    swept = room.sweep_with(made, watch, caps=("100",), iters=200)
    assert isinstance(swept, SweepDocument | Refusal), swept
    assert room.free(30)
    assert room.nobody_harmed()


def test_an_image_that_is_not_there_is_not_pulled(room, runtime):
    refused = room.sweep_with(runtime(image="localhost/nothing:1", arguments=()))
    assert isinstance(refused, Refusal)
    assert refused.reason is not Reason.DEADLINE


def test_a_tenant_in_a_container_is_known_by_its_name(container, podman):
    inspected = subprocess.run(
        [podman, "inspect", "-f", "{{.State.Pid}} {{.Id}}", container], capture_output=True, check=True
    )
    pid, container_id = inspected.stdout.split()
    processes = Processes()
    until = time.monotonic() + 5
    while (
        identity := Identities(processes).of(processes.identities([int(pid)]))[int(pid)].identity
    ).container_id is None:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert (identity.container_id, identity.container_runtime) == (container_id.decode(), "podman")
    assert identity.container_name == container
