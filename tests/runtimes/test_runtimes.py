"""The measuring client in containers and by commands: managed, known, and never ended by us."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from mpswatch.documents import Reason, SweepDocument
from mpswatch.sweep import progress as steps
from mpswatch.sweep.permit import Refusal
from mpswatch.sweep.runtime import ClientProgramError, ProcessRuntime
from mpswatch.sweep.runtimes import CommandRuntime, ContainerRuntime, refused_arguments

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace takes root")


@pytest.fixture
def runtime(client, docker):
    def made(**settings):
        where = {} if "container" in settings else {"image": "torch-image"}
        known = {"name": "docker", "client": client, "uid": os.geteuid(), "program": docker, "backend": "numpy"}
        return ContainerRuntime(**(known | where | settings))

    return made


def is_complete(swept):
    assert isinstance(swept, SweepDocument), swept
    assert swept.complete_sweep, swept.partial_run_note
    return swept


def test_a_sweep_in_a_fresh_container_is_complete_and_its_clients_are_known_by_their_namespace(room, runtime):
    swept = is_complete(room.sweep_with(runtime()))
    assert swept.protocol.client_runtime == f"docker run torch-image python3 as uid {os.geteuid()}"
    for cell in swept.cells:
        assert cell.self_was_managed
        assert cell.client_pid_is_namespaced
        assert cell.client_reported_pid != cell.client_pid
        assert cell.environment["CUDA_MPS_PIPE_DIRECTORY"] == str(room.stack.pipe_directory)
    assert room.nobody_harmed()
    assert room.free()


def test_a_sweep_inside_a_running_container_takes_the_client_from_standard_input(room, runtime):
    swept = is_complete(room.sweep_with(runtime(container="embedder")))
    assert swept.protocol.client_runtime == f"docker exec embedder python3 as uid {os.geteuid()}"
    assert all(cell.client_pid_is_namespaced for cell in swept.cells)
    assert room.nobody_harmed()
    assert room.free()


@pytest.mark.parametrize(
    "command",
    [
        (sys.executable, "-B", "{client}", "--backend", "{backend}", "--pipe-directory", "{pipe_directory}"),
        (sys.executable, "-c", "{bootstrap}", "--backend", "{backend}", "--pipe-directory", "{pipe_directory}"),
    ],
)
def test_a_sweep_by_a_command_of_ones_own(command, room, client):
    runtime = CommandRuntime(command=command, client=client, uid=os.geteuid(), backend="numpy")
    swept = is_complete(room.sweep_with(runtime))
    assert swept.protocol.client_runtime.startswith("command ")
    assert room.nobody_harmed()
    assert room.free()


def test_when_dockers_program_is_killed_in_mid_cell_the_client_drains_and_leaves(room, runtime):
    made = runtime()

    def watch(step):
        if isinstance(step, steps.CellMeasuring):
            (program,) = made.pipes
            os.kill(program, signal.SIGKILL)

    swept = room.sweep_with(made, watch, caps=("100",), iters=400)
    assert isinstance(swept, SweepDocument | Refusal)
    assert room.free(20)
    assert room.nobody_harmed()


def test_an_image_that_is_not_there_refuses_the_sweep_in_dockers_words(room, runtime):
    refused = room.sweep_with(runtime(image="nothing"))
    assert isinstance(refused, Refusal)
    assert "Unable to find image 'nothing'" in refused.detail
    assert room.free()


def test_a_client_of_another_uid_than_the_preflight_was_for_gets_no_cell(room, runtime):
    refused = room.sweep_with(runtime(uid=1001))
    assert isinstance(refused, Refusal)
    assert refused.reason in {Reason.UID_MISMATCH, Reason.CLIENT_DIED, Reason.CLIENT_IMPORT_FAILED}
    assert room.nobody_harmed()


def test_a_program_that_is_not_there_is_named(room, runtime):
    refused = room.sweep_with(runtime(program="/nonexistent/docker"))
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.CLIENT_PROGRAM_MISSING


@pytest.mark.parametrize(
    "words", [("-t",), ("--memory=1g",), ("-m", "1g"), ("--sig-proxy=true",), ("--memory-swap=1",)]
)
def test_what_would_end_a_client_is_refused(words, runtime):
    assert refused_arguments(words)
    with pytest.raises(ClientProgramError):
        runtime(arguments=words)


def test_an_image_and_a_container_are_one_too_many(client):
    with pytest.raises(ClientProgramError):
        ContainerRuntime(name="docker", client=client, uid=0, image="a", container="b")


def test_a_process_of_another_user_keeps_its_pid_and_session(tmp_path):
    from mpswatch.proc import Processes
    from mpswatch.sweep.log import LauncherLog

    program = tmp_path / "wait.py"
    program.write_text("import sys; sys.stdin.read()")
    tmp_path.chmod(0o755)
    python = next((path for path in ("/usr/bin/python3", "/usr/local/bin/python3") if Path(path).exists()), None)
    if python is None or any(not os.access(parent, os.X_OK) for parent in tmp_path.parents):
        pytest.skip("no interpreter that anybody may execute")
    runtime = ProcessRuntime(python=python, client=program, uid=65534)
    with LauncherLog() as log:
        launched = runtime.start(pipe_directory=tmp_path, gpu_uuid="GPU-1", log_fd=log.fd)
        until = time.monotonic() + 10
        while (facts := Processes().facts(launched.pid)).uid != 65534:
            assert time.monotonic() < until, facts
            time.sleep(0.02)
        assert facts.session == launched.pid
        launched.close()
