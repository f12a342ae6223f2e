"""A driver that lists nobody while the control daemon has clients, and newcomers while the control daemon is silent."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("end_to_end_watched_blind", Path(__file__).parent / "watched.py")
_watched = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _watched
_spec.loader.exec_module(_watched)

fault = pytest.mark.fault
OF_TENANTS = ("foreign_tenants", "foreign_memory_bytes", "unresolved_tenants", "managed_memory_bytes")


@pytest.fixture(scope="module")
def stage():
    with _watched.Stage(sweep={"enabled": False}) as stage:
        yield stage


@pytest.fixture
def watched(stage):
    _watched.until(stage.well)
    yield _watched.Watched(stage.daemon, stage.stack)
    stage.stack.tell("resume")
    stage.calm()


@fault("process list blind")
def test_a_list_of_nobody_beside_clients_is_unknown_and_never_zero(watched):
    newcomer = watched.stack.tell("foreign", name="x", memory_mib=700)["pid"]
    watched.stack.tell("smi", how="no_processes")
    watched.says(
        metrics={
            'poll_success{source="nvidia-smi"}': 1,
            'managed_clients{daemon="stack"}': 2,
            "gpu_memory_used_bytes": ...,
            **dict.fromkeys(OF_TENANTS, "process_list_blind"),
            "client_list_disagreements": None,
        },
        page=["unknown: process_list_blind"],
        document={
            "poll": {
                "tenants": {"value": None, "unknown_reason": "process_list_blind"},
                "gpus": {"value": [{"processes": {"value": None, "evidence": {"detail": ...}}}]},
            }
        },
        log=[],
    )
    watched.stack.tell("smi", how="")
    watched.until(lambda: watched.value("foreign_tenants") == 2)
    watched.stack.tell("remove", pid=newcomer)


def is_told_while_silent(watched, *, foreign, unresolved):
    """The control daemon's clients are unknown; of the GPU so much is told of those whom the driver tells apart."""
    watched.says(
        metrics={
            'managed_clients{daemon="stack"}': "daemon_silent",
            "foreign_tenants": foreign,
            "unresolved_tenants": unresolved,
        },
        page=["unknown: daemon_silent"],
        document={"poll": {"daemons": [{"up_reason": "daemon_silent"}], "tenants": {"value": ...}}},
        log=[{"event": "source does not answer", "source": "mps", "reason": "daemon_silent"}],
    )


def is_told_again(watched, *, foreign):
    watched.stack.tell("resume")
    watched.until(lambda: (watched.value("foreign_tenants"), watched.value("unresolved_tenants")) == (foreign, 0))


@fault("control daemon frozen")
def test_a_stranger_that_comes_while_the_control_daemon_is_silent_is_counted(watched):
    """The driver says of it that it is no MPS client."""
    watched.stack.tell("hang")
    is_told_while_silent(watched, foreign=1, unresolved=2)
    newcomer = watched.stack.tell("foreign", name="x", memory_mib=700)["pid"]
    is_told_while_silent(watched, foreign=2, unresolved=2)
    assert watched.value("foreign_memory_bytes") == (658 + 700) << 20
    is_told_again(watched, foreign=2)
    watched.stack.tell("remove", pid=newcomer)


@fault("control daemon frozen")
def test_an_mps_client_that_comes_while_the_control_daemon_is_silent_is_unresolved_until_it_answers(watched):
    """It may be a client of that daemon, or of one that nobody watches, which makes it foreign."""
    watched.stack.tell("daemon", name="other")
    first = watched.stack.tell("service", name="known", daemon="other", busy=False)["pid"]
    watched.until(lambda: watched.value("foreign_tenants") == 3)  # with its server
    watched.stack.tell("hang")
    is_told_while_silent(watched, foreign=3, unresolved=2)
    second = watched.stack.tell("service", name="hidden", daemon="other", busy=False)["pid"]
    is_told_while_silent(watched, foreign=3, unresolved=3)  # at least three: the help says so
    is_told_again(watched, foreign=4)
    for pid in (first, second):
        watched.stack.tell("remove", pid=pid)
    watched.stack.tell("die", daemon="other")


@fault("control daemon frozen")
def test_a_server_that_comes_while_the_control_daemon_is_silent_makes_the_foreign_unknown(watched):
    """The driver calls no server an MPS client: it may be foreign, or that daemon's new one."""
    watched.stack.tell("daemon", name="third")
    watched.stack.tell("hang")
    newcomer = watched.stack.tell("service", name="hidden", daemon="third", busy=False)["pid"]
    is_told_while_silent(watched, foreign="daemon_silent", unresolved=4)
    is_told_again(watched, foreign=3)
    watched.stack.tell("remove", pid=newcomer)
    watched.stack.tell("die", daemon="third")
