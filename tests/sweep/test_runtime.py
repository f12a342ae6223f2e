"""The client's environment is built, not inherited, and configuration cannot bend what is measured."""

from __future__ import annotations

import json
import os
import sys
import time

import pytest

from mpswatch.documents import Reason
from mpswatch.sweep.log import LauncherLog
from mpswatch.sweep.runtime import ClientProgramError, ProcessRuntime, refused_variables

TELL = (
    "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd(), os.getsid(0)]), flush=True)"
)


@pytest.fixture
def told(tmp_path, monkeypatch):
    """What a program that is started as the client sees: arguments, environment, directory, session; and its pid."""

    def told(**settings):
        program = tmp_path / "tell.py"
        program.write_text(TELL)
        for name in (
            "LD_PRELOAD",
            "CUDA_MPS_CLIENT_PRIORITY",
            "PYTORCH_CUDA_ALLOC_CONF",
            "NOTIFY_SOCKET",
            "PYTHONPATH",
        ):
            monkeypatch.setenv(name, "")
        runtime = ProcessRuntime(python=sys.executable, client=program, **settings)
        with LauncherLog() as log:
            launched = runtime.start(pipe_directory=tmp_path / "pipe", gpu_uuid="GPU-1", log_fd=log.fd)
            read, until = b"", time.monotonic() + 10
            while not read.endswith(b"\n"):
                assert time.monotonic() < until, log.last()
                try:
                    read += os.read(launched.receive_fd, 65536)
                except BlockingIOError:
                    time.sleep(0.01)
            launched.close()
            while launched.exited() is None:
                time.sleep(0.01)
        return [*json.loads(read), launched.pid]

    return told


def test_the_client_gets_what_it_needs_and_nothing_of_ours(told, tmp_path):
    arguments, environment, directory, session, pid = told(environment={"LD_LIBRARY_PATH": "/opt/cuda/lib64"})
    assert arguments == ["--backend", "torch", "--pipe-directory", str(tmp_path / "pipe")]
    assert directory == "/"
    assert session == pid
    environment.pop("LC_CTYPE", None)  # the interpreter's own
    assert environment == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": os.environ.get("HOME", "/"),
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LD_LIBRARY_PATH": "/opt/cuda/lib64",
        "CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "pipe"),
        "CUDA_VISIBLE_DEVICES": "GPU-1",
        "CUDA_MODULE_LOADING": "LAZY",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "NUMEXPR_NUM_THREADS": "1",
    }


def test_configuration_cannot_set_what_changes_the_measurement(tmp_path):
    names = ["CUBLAS_WORKSPACE_CONFIG", "CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "LD_PRELOAD"]
    refused = ("CUBLAS_WORKSPACE_CONFIG", "CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD")
    assert refused_variables(names) == refused
    with pytest.raises(ClientProgramError, match="CUDA_LAUNCH_BLOCKING"):
        ProcessRuntime(python="python3", client=tmp_path, environment={"CUDA_LAUNCH_BLOCKING": "1"})


def test_an_interpreter_that_is_not_there_is_named_with_the_remedy(tmp_path):
    runtime = ProcessRuntime(python="/no/such/python", client=tmp_path)
    with pytest.raises(ClientProgramError, match="/no/such/python") as caught:
        runtime.start(pipe_directory=tmp_path, gpu_uuid="GPU-1", log_fd=2)
    assert caught.value.reason is Reason.CLIENT_PROGRAM_MISSING
    assert caught.value.remedy


def test_the_document_says_who_the_client_was(tmp_path):
    described = ProcessRuntime(python="/usr/bin/python3", client=tmp_path).describe()
    assert described == f"process /usr/bin/python3 as uid {os.geteuid()}"
