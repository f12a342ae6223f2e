"""One daemon walks through the faults of its sources and of its client; metrics, page, document and log say the same.

docs/operations.md has a row for each, and the marker `fault` names it.
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


fault = pytest.mark.fault


@pytest.fixture(scope="module")
def client_arguments(tmp_path_factory):
    """The file whose words the measuring client gets besides its own: `--fail-in`, for one (mpswatch/client/faults)."""
    path = tmp_path_factory.mktemp("client") / "arguments"
    path.write_text("")
    return path


@pytest.fixture(scope="module")
def stage(client_arguments):
    python = client_arguments.with_name("python")
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@" $(cat {client_arguments})\n')
    python.chmod(0o755)
    client = {"python": str(python)}
    with _watched.Stage(sweep={"enabled": False, "cell_deadline": "7s", "caps": [100], "client": client}) as stage:
        yield stage


@pytest.fixture
def watched(stage):
    _watched.until(stage.well)
    yield _watched.Watched(stage.daemon, stage.stack)
    stage.calm()


def is_unknown_everywhere(watched, reason, *, up):
    """The control daemon's figures are absent for that reason, in all four places; the GPU's are still there."""
    watched.says(
        metrics={
            'poll_success{source="mps"}': 0,
            'mps_up{daemon="stack"}': up,
            'managed_clients{daemon="stack"}': reason,
            'managed_memory_bytes{daemon="stack"}': None,
            'mps_contexts_used{daemon="stack"}': None,
            'own_clients{daemon="stack"}': None,
            "mps_server_state": None,
            'poll_success{source="nvidia-smi"}': 1,
            "gpu_memory_used_bytes": ...,
        },
        page=[f"unknown: {reason}"],
        document={"poll": {"daemons": [{"servers": {"value": None, "unknown_reason": reason}}]}},
        log=[{"event": "source does not answer", "source": "mps", "reason": reason}],
    )
    assert watched.daemon.get("/-/healthy").status_code == 200


def answers_again(watched, source="mps"):
    watched.until(lambda: watched.said("source answers again", source=source))


# --- the control program and its daemon


@fault("control program missing")
def test_the_control_program_is_missing(watched, stage):
    away = stage.control_program.rename(stage.folder / "away")
    is_unknown_everywhere(watched, "control_program_missing", up=None)
    watched.refuses("control_program_missing")
    away.rename(stage.control_program)
    answers_again(watched)


@fault("control daemon frozen")
def test_the_control_daemon_is_frozen(watched):
    watched.stack.tell("hang")
    is_unknown_everywhere(watched, "daemon_silent", up=None)
    watched.refuses("daemon_silent")
    watched.stack.tell("resume")
    answers_again(watched)


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("prose", marks=fault("control daemon answers prose with exit 0")),
        pytest.param("half_line", marks=fault("control daemon answers half a line")),
        pytest.param("flood", marks=fault("control daemon answers 10 MB")),
        pytest.param("not_utf8", marks=fault("control daemon answers non-UTF-8")),
        "silence",
    ],
)
def test_the_control_daemon_answers_what_is_no_answer(watched, how):
    watched.stack.tell("lie", how=how)
    is_unknown_everywhere(watched, "daemon_nonsense", up=None)
    watched.refuses("daemon_nonsense")
    watched.stack.tell("honest")
    answers_again(watched)


@fault("protocol 3")
def test_the_control_daemon_speaks_protocol_3(watched):
    watched.stack.tell("lie", how="protocol3")
    is_unknown_everywhere(watched, "protocol_unsupported", up=1)
    watched.refuses("protocol_unsupported")
    watched.stack.tell("honest")
    answers_again(watched)


@fault("protocol 3")
def test_a_daemon_of_protocol_3_is_read_and_no_sweep_runs_under_it(watched):
    watched.stack.tell("restart", protocol=3, again=True)
    watched.says(
        metrics={
            'mps_server_state{state="ready"}': 1,
            'managed_clients{daemon="stack"}': 2,
            "foreign_tenants": 1,
            "client_list_disagreements": 0,
            "mps_contexts_used": "not_supported",
            "mps_waiting_clients": "protocol_unsupported",
        },
        page=["Ready, server", "managed: 2 processes"],
        document={"poll": {"daemons": [{"protocol": "3", "servers": {"value": [{"name": f"uid_{os.getuid()}"}]}}]}},
        log=[],
    )
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


@fault("server in FAULT")
def test_the_server_is_in_fault(watched):
    watched.stack.tell("state", state="FAULT")
    watched.says(
        metrics={'mps_server_state{state="fault"}': 1, 'mps_server_state{state="active"}': 0},
        page=["FAULT, server", "server_fault stack"],
        document={"poll": {"daemons": [{"servers": {"value": [{"server_state": "FAULT"}]}}]}},
        log=[{"kind": "server_fault", "daemon": "stack"}],
        journal=["server_fault"],
    )
    watched.refuses("server_fault")


@fault("control daemon absent")
@fault("control daemon killed in mid-poll")
def test_the_control_daemon_is_killed_in_mid_poll_and_absent_afterwards(watched, stage):
    watched.stack.tell("hang")  # a poll now waits for it
    time.sleep(0.4)
    watched.stack.tell("die", what="daemon")
    seen = set()
    watched.until(lambda: seen.add(watched.value("managed_clients", daemon="stack")) or None in seen)
    is_unknown_everywhere(watched, "daemon_absent", up=0)
    assert seen <= {2, None}
    watched.refuses("daemon_absent")
    assert "daemon_down" in watched.happened()
    watched.stack.tell("start")
    stage.add_services()
    watched.until(lambda: "daemon_up" in watched.happened())
    answers_again(watched)


@fault("control daemon restarted with another uid")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have a server of another uid")
def test_the_control_daemon_is_restarted_with_a_server_of_another_uid(watched, stage):
    changes = watched.value("mps_server_changes_total", daemon="stack")
    watched.stack.tell("restart", server_uid=1234, again=False)
    watched.until(lambda: watched.value("mps_server_info", server_uid="1234") == 1)
    (server,) = watched.poll()["daemons"][0]["servers"]["value"]
    assert "uid" not in server, "it is for those who have the password"
    watched.says(
        metrics={
            'mps_server_info{server_uid="1234"}': 1,
            'mps_server_changes_total{daemon="stack"}': changes + 1,
            'managed_clients{daemon="stack"}': 0,
        },
        page=[f"ACTIVE, server {server['pid']}, 0 clients"],
        document={"poll": {"daemons": [{"servers": {"value": [{"pid": ..., "server_state": "ACTIVE"}]}}]}},
        log=[{"kind": "server_changed", "event": f"to {server['pid']}"}],
        journal=["server_changed"],
    )
    watched.refuses("uid_mismatch")
    watched.stack.tell("restart", server_uid=os.geteuid(), again=False)
    stage.add_services()


# --- the GPU's sources


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        pytest.param("hang", "source_stuck", marks=fault("nvidia-smi hung")),
        ("garbage", "nvidia_smi_nonsense"),
        ("half", "nvidia_smi_nonsense"),
        ("empty", "nvidia_smi_nonsense"),
        ("fail", "nvml_missing"),
        pytest.param("lost", "gpu_lost", marks=fault("GPU lost")),
        ("no_devices", "no_gpu"),
    ],
)
def test_nvidia_smi_gives_no_report(watched, how, reason):
    watched.stack.tell("smi", how=how)
    watched.says(
        metrics={
            'poll_success{source="nvidia-smi"}': 0,
            "gpu_info": reason,
            "gpu_memory_used_bytes": reason,
            "foreign_tenants": reason,
            "foreign_memory_bytes": reason,
            'poll_success{source="mps"}': 1,
            'mps_server_state{state="active"}': 1,
        },
        page=[f"unknown: {reason}"],
        document={"poll": {"gpus": {"value": None, "unknown_reason": reason}}},
        log=[{"event": "source does not answer", "source": "nvidia-smi", "reason": reason}],
    )
    watched.refuses(reason)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        pytest.param("na", "not_supported", marks=fault("nvidia-smi says [N/A]")),
        pytest.param(
            "permissions", "insufficient_permissions", marks=fault("nvidia-smi says [Insufficient Permissions]")
        ),
        pytest.param("mig", "not_supported", marks=fault("MIG")),
    ],
)
def test_nvidia_smi_does_not_tell_the_memory_of_processes(watched, how, reason):
    watched.stack.tell("smi", how=how)
    is_mig = how == "mig"

    def none_is_known(rows):
        return {(row["used_memory_bytes"], row["unknown"].get("used_memory_bytes")) for row in rows} == {(None, reason)}

    conditions = {"unknown": {"utilization_ratio": "mig"}} if is_mig else {"utilization_ratio": ...}
    gpus = {"value": [{"gpu": {"mig_enabled": is_mig}, "conditions": conditions}]}
    watched.says(
        metrics={
            "foreign_memory_bytes": reason,
            "foreign_tenants": 1,  # who is there is known
            "foreign_memory_unknown_tenants": 1,
            'managed_clients{daemon="stack"}': 2,
        },
        page=[
            "foreign: 1 process",
            *(f"used_memory_bytes {kind} pid" for kind in ("foreign", "managed")),
            f"{reason} used_memory_bytes",
            *(["utilization_ratio GPU", "mig used_memory_bytes"] if is_mig else []),
        ],
        document={"poll": {"tenants": {"value": none_is_known}, "gpus": gpus}},
        log=[],
    )
    if is_mig:
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
        pytest.param("unlisted", "not_managed", marks=fault("client never joins")),
        # listed twice, it is one client all the same
        pytest.param("twice", None, marks=fault("client joins twice")),
        pytest.param("nobody", "identity_ambiguous", marks=fault("client joins under another pid")),
        pytest.param("stranger", "not_managed", marks=fault("client joins under another pid")),
        ("refuse", "cuda_unavailable"),
        ("nonsense", "cuda_unavailable"),
        ("close", "cuda_unavailable"),
        pytest.param("late", "deadline", marks=fault("client answers late")),
    ],
)
def test_a_client_that_is_not_received_as_it_should_be_leaves_no_number(watched, how, reason):
    pids = {"nobody": NOBODY, "stranger": watched.daemon.pid}
    if how in pids:
        watched.stack.tell("attach", how="other_pid", pid=pids[how])
    else:
        watched.stack.tell("attach", how=how, **({"seconds": 8.0} if how == "late" else {}))
    sweeps_and_says(watched, reason)


NOBODY = 4194000
"""A pid that no process has: Linux gives them out from below."""


@fault("client answers nonsense")
@pytest.mark.parametrize("phase", ["context", "attached", "measure"])
def test_a_client_that_answers_nonsense_leaves_no_number(watched, client_arguments, phase):
    with_arguments(client_arguments, f"--fail-in {phase}:nonsense", lambda: sweeps_and_says(watched, "client_nonsense"))


@fault("client dies in each phase")
@pytest.mark.parametrize("phase", ["fork", "context", "allocate", "attached", "go", "result"])
def test_a_client_that_dies_leaves_no_number(watched, client_arguments, phase):
    """By SIGKILL, in the phases without work in flight: with some it would break the server for whoever comes next."""
    with_arguments(client_arguments, f"--fail-in {phase}:die", lambda: sweeps_and_says(watched, "client_died"))


@fault("client dies in each phase")
def test_a_launcher_that_dies_before_it_is_ready_is_a_refusal(watched, client_arguments):
    def is_refused():
        watched.refuses("client_died")
        watched.says(
            metrics={'last_sweep_refused{reason="client_died"}': 1},
            page=["client_died"],
            document={"refused": [{"event": {"reason": "client_died"}}]},
            log=[{"event": "no sweep", "reason": "client_died", "detail": "unrecognized arguments"}],
            journal=["sweep_refused"],
        )

    with_arguments(client_arguments, "--no-such-option", is_refused)


def with_arguments(file, words, act):
    file.write_text(words)
    try:
        act()
    finally:
        file.write_text("")


def sweeps_and_says(watched, reason):
    """A sweep of one cell, which has no number for that reason, or None: has one; and nobody is left behind."""
    outcome = "failed" if reason else "complete"
    before = watched.value("sweeps_total", outcome=outcome) or 0
    watched.daemon.signal(signal.SIGUSR1)
    told = {"state": "unknown", "tflops": None, "unknown_reason": reason, "failure": ...}
    cell = told if reason else {"tflops": ..., "unknown_reason": None}
    watched.says(
        metrics={
            f'sweeps_total{{outcome="{outcome}"}}': before + 1,
            'sweep_running{daemon="stack"}': 0,
            'cap_tflops{cap="100"}': None if reason else ...,
            **({f'cap_unknown{{cap="100",reason="{reason}"}}': 1} if reason else {"cap_unknown": None}),
        },
        page=[f"unknown: {reason}", f"0 of 1 caps have a number. 100 %: {reason}"] if reason else [", complete burst"],
        document={"sweeps": [{"outcome": outcome, "document": {"cells": [cell]}}]},
        log=[{"event": "sweep partial", "note": f"100 %: {reason}"} if reason else {"event": "sweep complete"}],
        journal=["sweep_started"],
        seconds=30.0,
    )
    shown = watched.document()["sweeps"][0]["document"]["run_id"]
    watched.until(lambda: shown in {run["run_id"] for run in watched.daemon.runs()})
    watched.stack.wait_for_clients([])
