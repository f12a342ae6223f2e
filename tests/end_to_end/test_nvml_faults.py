"""A daemon for real stacks whose NVML is a stub that goes wrong in every way; docs/operations.md has a row for each.

The control daemon is played by tests/mps/fake_control.py: it answers, and its server is a process that does nothing.
A sweep that nothing holds up gets as far as the measuring client, whose interpreter is not there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

TESTS = Path(__file__).parents[1]


def _load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_watched = _load("end_to_end_watched_nvml", TESTS / "end_to_end" / "watched.py")
STUB = TESTS / "gpu_sources" / "stub_nvml.c"


class Host:
    """A host with a stub of NVML, and daemons on it."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="mpsw-"))
        self.library = self.folder / "lib"
        self.nowhere = self.folder / "nowhere"
        self.pipe = self.folder / "pipe"
        for path in (self.library, self.nowhere, self.pipe):
            path.mkdir()
        options = ["-shared", "-fPIC", "-O1", "-o", self.library / "libnvidia-ml.so.1", STUB]
        subprocess.run(["gcc", *options], check=True)
        self.scenario = self.folder / "scenario"
        self.play()
        self.control = self.folder / "nvidia-cuda-mps-control"
        source = (TESTS / "mps" / "fake_control.py").read_text().splitlines(keepends=True)
        self.control.write_text("".join([f"#!{sys.executable} -SE\n", *source[1:]]))
        self.control.chmod(0o755)
        server = self.folder / "nvidia-cuda-mps-server"
        server.write_text("#!/bin/sh\nread nothing\n")  # a script, so that it goes by this name
        server.chmod(0o755)
        self.server = subprocess.Popen([server], stdin=subprocess.PIPE)
        self.serve()
        self.running = []

    def serve(self, *clients):
        servers = {str(self.server.pid): {"clients": clients}}
        fresh = self.folder / "fake.new"
        fresh.write_text(json.dumps({"mode": "honest", "connections": [{"servers": servers}]}))
        fresh.rename(self.pipe / "fake.json")

    def play(self, *lines):
        fresh = self.scenario.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.rename(self.scenario)

    def start(self, *, library=None, before=(), sweeps=False):
        name = f"daemon-{len(self.running)}"
        settings = {
            **_watched.SETTINGS,
            "daemons": [{"name": "stack", "pipe_directory": str(self.pipe)}],
            "poll": {"interval": "500ms"},
            "mps": {"control_program": str(self.control), "deadline": "1400ms"},
            "gpu": {"source": "nvml", "deadline": "800ms"},
            "sweep": {
                **_watched.SETTINGS["sweep"],
                "enabled": sweeps,
                "client": {"python": str(self.folder / "no-python")},
            },
            "archive": {"directory": str(self.folder / name)},
        }
        path = self.folder / f"{name}.yml"
        path.write_text(yaml.safe_dump(settings))
        argv = [*before, sys.executable, "-m", "mpswatch", "run", "--config.file", str(path)]
        environment = {"LD_LIBRARY_PATH": str(library or self.library), "STUB_NVML": str(self.scenario)}
        daemon = _watched.Daemon(argv, self.folder / name, self.folder / f"{name}.log", environment)
        self.running.append(daemon)
        return _watched.Watched(daemon)

    def close(self):
        for daemon in self.running:
            daemon.finish()
        self.server.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def host():
    made = Host()
    yield made
    made.close()


@pytest.fixture(scope="module")
def walking(host):
    """The daemon that walks through what its NVML says."""
    return host.start()


@pytest.fixture
def nvml(host, walking):
    host.play()
    walking.until(lambda: walking.value("gpu_info") == 1 and walking.value("foreign_tenants") == 0)
    return _watched.Watched(walking.daemon)


fault = pytest.mark.fault
GOES_ON = "client_program_missing"
"""What a sweep that nothing else holds up is refused for here."""


def no_gpu_is_known(watched, reason):
    """NVML gave nothing at all: everything of the GPU is absent for that reason, and the control daemon's stays."""
    watched.says(
        metrics={
            'poll_success{source="nvml"}': 0,
            "gpu_info": reason,
            "gpu_memory_used_bytes": reason,
            "foreign_tenants": reason,
            "foreign_memory_bytes": reason,
            'mps_up{daemon="stack"}': 1,
            'mps_server_state{state="active"}': 1,
        },
        page=[f"unknown: {reason}"],
        document={"poll": {"gpus": {"value": None, "unknown_reason": reason}}},
        log=[{"event": "source does not answer", "source": "nvml", "reason": reason}],
    )
    assert watched.daemon.get("/-/healthy").status_code == 200
    watched.refuses(reason)


def nobody_is_known(watched, reason, *, of_the_gpu, poll=(), document=(), log=()):
    """Who is on the GPU is unknown, never "nobody"."""
    watched.says(
        metrics={
            "foreign_tenants": reason,
            "foreign_memory_bytes": reason,
            "unresolved_tenants": reason,
            'mps_server_state{state="active"}': 1,
            **of_the_gpu,
        },
        page=[f"unknown: {reason}"],
        document={"poll": {"tenants": {"value": None, "unknown_reason": reason}, **dict(poll)}, **dict(document)},
        log=log,
    )


@fault("NVML missing")
def test_nvml_is_missing(host):
    no_gpu_is_known(host.start(library=host.nowhere), "nvml_missing")


@fault("NVML of another version than the driver")
def test_nvml_is_of_another_version_than_the_driver_until_it_is_not(host):
    host.play("error nvmlInit 18")
    watched = host.start()
    no_gpu_is_known(watched, "nvml_mismatch")
    host.play()
    watched.until(lambda: watched.value("gpu_info") == 1)
    assert watched.said("source answers again", source="nvml")
    watched.daemon.stop()


def test_a_process_on_the_gpu_is_seen_with_its_memory(host, nvml):
    host.play(f"process 0 {os.getpid()} 1048576 0 0 0 python3")
    nvml.until(lambda: nvml.value("foreign_tenants") == 1)
    assert nvml.value("foreign_memory_bytes") == 1048576


def test_a_name_that_is_no_utf_8_or_moves_the_cursor_comes_out_printable(host, nvml):
    host.play(f'process 0 {os.getpid()} 1048576 0 0 0 caf\\xe9\\xff\\x1b[2J\\x0a<b>"}} 1')
    nvml.until(lambda: [name for name in names_of(nvml) if name.startswith("caf")])
    (name,) = names_of(nvml)
    assert name.isprintable()
    assert "\x1b" not in nvml.page() + nvml.daemon.get("/api/v1/latest").text
    assert "<b>" not in nvml.page()
    assert nvml.daemon._log.read_text().replace("\n", "").isprintable()


def names_of(watched):
    return [
        dict(key)["process_name"] for key in watched.daemon.metrics().get("mpswatch_foreign_tenant_memory_bytes", {})
    ]


@fault("pid garbage from NVML")
@pytest.mark.parametrize("pid", [0, 4294967295])
def test_a_pid_that_can_be_none_makes_everybody_unknown(host, nvml, pid):
    host.play(f"process 0 {os.getpid()} 1048576 0 0 0 python3", f"process 0 {pid} 1048576 0 0 0 x")
    evidence = {"detail": f"the driver lists pid {pid}, which is none"}
    nobody_is_known(
        nvml,
        "nvml_error",
        of_the_gpu={"gpu_memory_used_bytes": ..., 'poll_success{source="nvml"}': 1},
        poll={"gpus": {"value": [{"processes": {"unknown_reason": "nvml_error", "evidence": evidence}}]}},
    )
    nvml.refuses(GOES_ON)


@fault("GPU lost")
def test_the_gpu_is_lost(host, nvml):
    functions = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses")
    host.play(*(f"error {name} 15" for name in (*functions, "nvmlDeviceGetMemoryInfo")))
    nobody_is_known(
        nvml,
        "gpu_lost",
        of_the_gpu={"gpu_memory_used_bytes": "gpu_lost", "gpu_info": 1},  # that there is one is still true
        poll={"gpus": {"value": [{"conditions": {"unknown": {"memory_used_bytes": "gpu_lost"}}}]}},
    )
    nvml.refuses("gpu_lost")


@fault("process list blind")
def test_a_list_that_lacks_the_server_and_all_its_clients_is_not_believed(host, nvml):
    client, parent = os.getpid(), os.getppid()
    host.serve(client)
    for others in ([], [f"process 0 {parent} 1048576 0 0 0 stranger"]):
        host.play(*others)
        nobody_is_known(nvml, "process_list_blind", of_the_gpu={'poll_success{source="nvml"}': 1, "gpu_info": 1})
    host.play(*others, f"process 0 {host.server.pid} 1048576 0 0 0 nvidia-cuda-mps-server")
    nvml.until(lambda: nvml.value("foreign_tenants") == 1)  # a client that has just joined, or left, is no blindness
    assert nvml.value("managed_clients", daemon="stack") == 1
    host.play(*others, f"process 0 {client} 1048576 1 0 0 client")
    nvml.until(lambda: nvml.value("managed_memory_bytes") == 1 << 20)
    assert nvml.value("foreign_tenants") == 1
    host.serve()


@fault("pid namespace blind")
@pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace of its own needs root")
def test_from_inside_a_pid_namespace_nobody_is_not_no_tenants(host):
    host.play()
    watched = host.start(before=["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"], sweeps=True)
    nobody_is_known(
        watched,
        "pid_namespace_blind",
        # nor is the server seen that is named, so that no sweep runs
        of_the_gpu={'poll_success{source="nvml"}': 1, 'last_sweep_refused{reason="server_vanished"}': 1},
        document={"refused": [{"event": {"reason": "server_vanished"}}]},
        log=[{"event": "no sweep", "reason": "server_vanished"}],
    )
    watched.daemon.signal(signal.SIGKILL)
    watched.daemon.wait()


@fault("NVML hung")
def test_nvml_hangs(host, nvml):
    host.play("hang nvmlDeviceGetComputeRunningProcesses")
    no_gpu_is_known(nvml, "source_stuck")
    before = nvml.value("poll_last_success_timestamp_seconds", source="mps")
    nvml.until(lambda: nvml.value("poll_last_success_timestamp_seconds", source="mps") > before)  # polls go on
    assert nvml.daemon.stop() == 0  # and it does not hold the exit
