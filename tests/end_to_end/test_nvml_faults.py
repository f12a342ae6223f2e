"""A daemon for real stacks whose NVML is a stub that goes wrong in every way; docs/operations.md has a row for each.

The control daemon is played by tests/mps/fake_control.py: it answers, and runs no server.
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
        (self.pipe / "fake.json").write_text(json.dumps({"mode": "honest", "connections": [{}]}))
        self.running = []

    def play(self, *lines):
        fresh = self.scenario.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.rename(self.scenario)

    def start(self, *, library=None, before=()):
        name = f"daemon-{len(self.running)}"
        settings = {
            **_watched.SETTINGS,
            "daemons": [{"name": "stack", "pipe_directory": str(self.pipe)}],
            "poll": {"interval": "500ms"},
            "mps": {"control_program": str(self.control), "deadline": "1s"},
            "gpu": {"source": "nvml", "deadline": "800ms"},
            "sweep": {"enabled": False},
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
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def host():
    made = Host()
    yield made
    made.close()


@pytest.fixture(scope="module")
def nvml(host):
    """The daemon that walks through what its NVML says."""
    return host.start()


def no_gpu_is_known(watched, reason):
    """NVML gave nothing at all: everything of the GPU is absent for that reason, and the control daemon's stays."""
    watched.until(lambda: watched.reasons("gpu_info") == {reason})
    for gone in ("gpu_info", "gpu_memory_used_bytes", "foreign_tenants", "foreign_memory_bytes"):
        assert watched.daemon.metrics().get(f"mpswatch_{gone}", {}) == {}
    assert watched.value("poll_success", source="nvml") == 0
    assert watched.value("mps_up", daemon="stack") == 1
    gpus = watched.poll()["gpus"]
    assert (gpus["value"], gpus["unknown_reason"]) == (None, reason)
    assert reason in watched.page()
    assert watched.until(lambda: watched.said("source does not answer", source="nvml", reason=reason))
    assert watched.daemon.get("/-/healthy").status_code == 200


def nobody_is_known(watched, reason):
    """Who is on the GPU is unknown, never "nobody"."""
    watched.until(lambda: reason in watched.reasons("foreign_tenants"))
    for gone in ("foreign_tenants", "foreign_memory_bytes", "unresolved_tenants"):
        assert watched.daemon.metrics().get(f"mpswatch_{gone}", {}) == {}
    assert watched.poll()["tenants"]["unknown_reason"] == reason
    assert reason in watched.page()


def test_nvml_is_missing(host):
    no_gpu_is_known(host.start(library=host.nowhere), "nvml_missing")


def test_nvml_is_of_another_version_than_the_driver_until_it_is_not(host, nvml):
    host.play("error nvmlInit 18")
    watched = host.start()
    no_gpu_is_known(watched, "nvml_mismatch")
    host.play()
    watched.until(lambda: watched.value("gpu_info") == 1)
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


@pytest.mark.parametrize("pid", [0, 4294967295])
def test_a_pid_that_can_be_none_makes_everybody_unknown(host, nvml, pid):
    host.play(f"process 0 {os.getpid()} 1048576 0 0 0 python3", f"process 0 {pid} 1048576 0 0 0 x")
    nobody_is_known(nvml, "nvml_error")
    assert nvml.value("gpu_memory_used_bytes") > 0


def test_the_gpu_is_lost(host, nvml):
    functions = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses")
    host.play(*(f"error {name} 15" for name in (*functions, "nvmlDeviceGetMemoryInfo")))
    nobody_is_known(nvml, "gpu_lost")
    assert nvml.reasons("gpu_memory_used_bytes") == {"gpu_lost"}
    assert nvml.value("gpu_memory_used_bytes") is None
    assert nvml.value("gpu_info") == 1  # that there is one, and its name, is still true


@pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace of its own needs root")
def test_from_inside_a_pid_namespace_nobody_is_not_no_tenants(host, nvml):
    host.play()
    watched = host.start(before=["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"])
    nobody_is_known(watched, "pid_namespace_blind")
    watched.daemon.signal(signal.SIGKILL)
    watched.daemon.wait()


def test_nvml_hangs(host, nvml):
    host.play("hang nvmlDeviceGetComputeRunningProcesses")
    no_gpu_is_known(nvml, "source_stuck")
    before = nvml.value("poll_last_success_timestamp_seconds", source="mps")
    nvml.until(lambda: nvml.value("poll_last_success_timestamp_seconds", source="mps") > before)  # polls go on
    assert nvml.daemon.stop() == 0  # and it does not hold the exit
