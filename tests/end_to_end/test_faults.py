"""One daemon walks through the faults of its sources; of each, metrics, page, document, log and refusals say the same.

docs/operations.md has a row for each.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("end_to_end_watched", Path(__file__).parent / "watched.py")
_watched = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _watched
_spec.loader.exec_module(_watched)


@pytest.fixture(scope="module")
def stage():
    with _watched.Stage(sweep={"enabled": False, "cell_deadline": "7s", "caps": [100]}) as stage:
        yield stage


@pytest.fixture
def watched(stage):
    _watched.until(stage.well)
    yield _watched.Watched(stage.daemon, stage.stack)
    stage.calm()


def is_unknown_everywhere(watched, reason, *, up):
    """The control daemon's figures are absent for that reason, in all four places; the GPU's are still there."""
    watched.until(lambda: watched.reasons("managed_clients") == {reason})
    assert watched.value("mps_up", daemon="stack") == up
    for gone in ("managed_clients", "managed_memory_bytes", "mps_contexts_used", "own_clients"):
        assert watched.value(gone, daemon="stack") is None
    assert watched.daemon.metrics().get("mpswatch_mps_server_state", {}) == {}
    assert watched.value("poll_success", source="mps") == 0
    assert watched.value("poll_success", source="nvidia-smi") == 1
    assert watched.value("gpu_memory_used_bytes") > 0
    assert f"unknown: {reason}" in watched.page()
    (look,) = watched.poll()["daemons"]
    assert look["servers"]["value"] is None
    assert look["servers"]["unknown_reason"] == reason
    assert watched.said("source does not answer", source="mps", reason=reason)
    assert watched.daemon.get("/-/healthy").status_code == 200


# --- the control program and its daemon


def test_the_control_program_is_missing(watched, stage):
    away = stage.control_program.rename(stage.folder / "away")
    is_unknown_everywhere(watched, "control_program_missing", up=None)
    watched.refuses("control_program_missing")
    away.rename(stage.control_program)


def test_the_control_daemon_is_frozen(watched):
    watched.stack.tell("hang")
    is_unknown_everywhere(watched, "daemon_silent", up=None)
    watched.refuses("daemon_silent")
    watched.stack.tell("resume")


@pytest.mark.parametrize("how", ["prose", "half_line", "flood", "not_utf8", "silence"])
def test_the_control_daemon_answers_what_is_no_answer(watched, how):
    watched.stack.tell("lie", how=how)
    is_unknown_everywhere(watched, "daemon_nonsense", up=None)
    watched.refuses("daemon_nonsense")


def test_the_control_daemon_speaks_protocol_3(watched):
    watched.stack.tell("lie", how="protocol3")
    is_unknown_everywhere(watched, "protocol_unsupported", up=1)
    watched.refuses("protocol_unsupported")


def test_a_daemon_of_protocol_3_is_read_and_no_sweep_runs_under_it(watched):
    watched.stack.tell("restart", protocol=3, again=True)
    watched.until(lambda: watched.value("mps_server_state", state="ready") == 1)
    watched.until(lambda: watched.value("managed_clients", daemon="stack") == 2)
    assert watched.value("foreign_tenants") == 1
    assert watched.value("client_list_disagreements") == 0
    assert watched.reasons("mps_contexts_used") == {"not_supported"}
    assert watched.reasons("mps_waiting_clients") == {"protocol_unsupported"}
    (look,) = watched.poll()["daemons"]
    assert (look["protocol"], look["servers"]["value"][0]["name"]) == ("3", f"uid_{os.getuid()}")
    watched.refuses("protocol_unsupported")
    assert watched.stack.status()["daemons"]["default"]["changing_commands"] == []
    watched.stack.tell("restart", protocol=2, again=True)


def test_what_another_server_gives_its_clients_at_most_is_published_with_it(watched):
    watched.stack.tell("restart", again=True, memory_limit="2G", default_percentage=40.0)
    watched.until(lambda: watched.value("mps_server_active_thread_ratio", daemon="stack") == 0.4)
    assert watched.value("mps_default_active_thread_ratio", daemon="stack") == 0.4
    assert watched.value("mps_server_pinned_memory_limit_bytes", daemon="stack") == 2 << 30
    assert watched.value("mps_default_pinned_memory_limit_bytes", daemon="stack") == 2 << 30
    watched.stack.tell("restart", again=True, memory_limit="", default_percentage=100.0)
    watched.until(lambda: watched.value("mps_server_active_thread_ratio", daemon="stack") == 1)
    assert watched.value("mps_server_pinned_memory_limit_bytes", daemon="stack") is None
    assert watched.reasons("mps_server_pinned_memory_limit_bytes") == set(), "none is set, and that is known"


def test_the_client_list_names_processes_that_do_not_exist(watched):
    watched.stack.tell("lie", how="wrong_clients")
    watched.until(lambda: (watched.value("client_list_disagreements") or 0) >= 1)
    (told,) = watched.poll()["disagreements"]
    assert told["only_in_client_list"] == [1]  # the other has no process: it may just have gone
    assert len(told["only_in_driver_list"]) == 2


def test_the_server_is_in_fault(watched):
    faults = len(watched.daemon.events("server_fault"))
    watched.stack.tell("state", state="FAULT")
    watched.until(lambda: watched.value("mps_server_state", state="fault") == 1)
    assert watched.value("mps_server_state", state="active") == 0
    assert "FAULT" in watched.page()
    assert watched.poll()["daemons"][0]["servers"]["value"][0]["server_state"] == "FAULT"
    watched.until(lambda: len(watched.daemon.events("server_fault")) > faults)
    watched.refuses("server_fault")


def test_the_control_daemon_is_killed_in_mid_poll_and_absent_afterwards(watched, stage):
    watched.stack.tell("hang")  # a poll now waits for it
    time.sleep(0.4)
    watched.stack.tell("die", what="daemon")
    seen = set()
    watched.until(lambda: seen.add(watched.value("managed_clients", daemon="stack")) or None in seen)
    is_unknown_everywhere(watched, "daemon_absent", up=0)
    assert seen <= {2, None}
    watched.refuses("daemon_absent")
    assert watched.daemon.events("daemon_down")
    watched.stack.tell("start")
    stage.add_services()
    watched.until(lambda: watched.daemon.events("daemon_up"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have a server of another uid")
def test_the_control_daemon_is_restarted_with_a_server_of_another_uid(watched, stage):
    changes = watched.value("mps_server_changes_total", daemon="stack")
    watched.stack.tell("restart", server_uid=1234, again=False)
    watched.until(lambda: watched.value("mps_server_info", server_uid="1234") == 1)
    watched.until(lambda: watched.value("mps_server_changes_total", daemon="stack") > changes)
    assert watched.value("managed_clients", daemon="stack") == 0
    watched.refuses("uid_mismatch")
    (event,) = [event for event in watched.daemon.events("server_changed") if "1234" in str(event)][-1:]
    assert event["daemon"] == "stack"
    watched.stack.tell("restart", server_uid=os.geteuid(), again=False)
    stage.add_services()


# --- the GPU's sources


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("hang", "source_stuck"),
        ("garbage", "nvidia_smi_nonsense"),
        ("half", "nvidia_smi_nonsense"),
        ("empty", "nvidia_smi_nonsense"),
        ("fail", "nvml_missing"),
        ("lost", "gpu_lost"),
        ("no_devices", "no_gpu"),
    ],
)
def test_nvidia_smi_gives_no_report(watched, how, reason):
    watched.stack.tell("smi", how=how)
    watched.until(lambda: watched.reasons("gpu_info") == {reason})
    for gone in ("gpu_memory_used_bytes", "foreign_tenants", "foreign_memory_bytes", "gpu_info"):
        assert watched.daemon.metrics().get(f"mpswatch_{gone}", {}) == {}
    assert watched.value("poll_success", source="nvidia-smi") == 0
    assert watched.value("poll_success", source="mps") == 1
    assert watched.value("mps_server_state", state="active") == 1
    gpus = watched.poll()["gpus"]
    assert (gpus["value"], gpus["unknown_reason"]) == (None, reason)
    assert watched.said("source does not answer", source="nvidia-smi", reason=reason)
    assert reason in watched.page()
    watched.refuses(reason)


@pytest.mark.parametrize(
    ("how", "reason"), [("na", "not_supported"), ("permissions", "insufficient_permissions"), ("mig", "not_supported")]
)
def test_nvidia_smi_does_not_tell_the_memory_of_processes(watched, how, reason):
    watched.stack.tell("smi", how=how)
    watched.until(lambda: watched.value("foreign_memory_bytes") is None)
    assert watched.reasons("foreign_memory_bytes") == {reason}
    assert watched.value("foreign_tenants") == 1  # who is there is known
    assert watched.value("foreign_memory_unknown_tenants") == 1
    rows = watched.poll()["tenants"]["value"]
    assert {(row["used_memory_bytes"], row["unknown"]["used_memory_bytes"]) for row in rows} == {(None, reason)}
    if how == "mig":
        watched.refuses("mig")


def test_unified_memory_has_no_figure_of_the_device(watched):
    watched.stack.tell("smi", how="unified")
    watched.until(lambda: watched.reasons("gpu_memory_used_bytes") == {"not_supported"})
    assert watched.value("gpu_memory_used_bytes") is None
    assert watched.value("foreign_memory_bytes") == 658 << 20


# --- the measuring client


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("unlisted", "not_managed"),
        ("twice", None),  # listed twice, it is one client all the same
        ("other_pid", "not_managed"),
        ("refuse", "cuda_unavailable"),
        ("nonsense", "cuda_unavailable"),
        ("close", "cuda_unavailable"),
        ("late", "deadline"),
    ],
)
def test_a_client_that_is_not_received_as_it_should_be_leaves_no_number(watched, how, reason):
    pid = {"pid": watched.daemon.pid} if how == "other_pid" else {}
    seconds = {"seconds": 8.0} if how == "late" else {}
    watched.stack.tell("attach", how=how, **seconds, **pid)
    before = {run["run_id"] for run in watched.daemon.runs()}  # of two in one second neither name need come first
    watched.daemon.signal(signal.SIGUSR1)
    run = watched.until(lambda: next((run for run in watched.daemon.runs() if run["run_id"] not in before), None), 30.0)
    (cell,) = run["cells"]
    assert cell["unknown_reason"] == reason
    assert (cell["tflops"] is None) == (reason is not None)
    watched.until(lambda: not any(watched.daemon.metrics()["mpswatch_sweep_running"].values()))
    if reason is not None:
        assert watched.value("cap_tflops") is None
        assert watched.value("cap_unknown", reason=reason) == 1
        assert f"unknown: {reason}" in watched.page()
        (sweep,) = watched.document()["sweeps"]
        assert sweep["document"]["cells"][0]["unknown_reason"] == reason
    watched.stack.wait_for_clients([])
