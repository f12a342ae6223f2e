"""A measuring client that is stuck is published as long as it is there, and not a poll longer."""

from __future__ import annotations

import contextlib
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from mpswatch.daemon.stuck import StuckClients
from mpswatch.latest import Latest, Settings
from mpswatch.proc import Processes

PLACE = ("stack", "GPU-1")


@pytest.fixture
def latest():
    settings = Settings(daemons={"stack": "/run/mps"}, poll_interval=15, sweep_interval=3600)
    return Latest(settings, host="gpu-07", simulated=False)


@pytest.fixture
def stuck(latest):
    return StuckClients(latest, Processes())


@pytest.fixture
def client():
    """Begin a process that stays until it is told to go; calling what comes back ends it."""
    with contextlib.ExitStack() as running:

        def begin():
            program = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
            running.callback(program.wait)
            running.callback(program.stdin.close)

            def end():
                program.stdin.close()
                program.wait()

            return program.pid, end

        yield begin


@pytest.fixture
def happened(event, latest, stuck):
    """Report clients as stuck, as a sweep does it."""

    def report(*pids, **rest):
        said = event("client_stuck", daemon=PLACE[0], gpu_uuid=PLACE[1], details={"pids": list(pids)}, **rest)
        stuck.note(said)
        latest.record(said)
        return said

    return report


def published(latest):
    return latest.view().stuck.get(PLACE, ())


def test_a_client_that_left_after_all_is_published_no_longer(latest, stuck, client, happened):
    (first, end_first), (second, end_second) = client(), client()
    happened(first, second)
    stuck.look()
    assert published(latest) == (first, second)
    end_first()
    stuck.look()
    assert published(latest) == (second,)
    end_second()
    stuck.look()
    assert published(latest) == ()


def test_one_that_the_runs_document_names_once_more_is_taken_back_all_the_same(latest, stuck, client, happened):
    pid, end = client()
    happened(pid)
    end()
    stuck.look()
    latest.set_stuck(*PLACE, (pid,))  # as the document of the run does, which is written later
    stuck.look()
    assert published(latest) == ()


def test_one_that_cannot_be_seen_here_stays(latest, stuck, happened):
    nobody = 2**22 + 1  # above the highest pid there is
    happened(nobody)
    stuck.look()
    assert published(latest) == (nobody,)


def test_after_a_restart_those_that_are_still_there_are_published(latest, stuck, client, event):
    (there, end), (gone, end_other) = client(), client()
    end_other()
    said = event("client_stuck", daemon=PLACE[0], gpu_uuid=PLACE[1], details={"pids": [there, gone]})
    stuck.recall([said], now=datetime.now(UTC))
    assert published(latest) == (there,)
    end()
    stuck.look()
    assert published(latest) == ()


def test_a_later_process_with_the_number_of_one_that_was_stuck_is_none(latest, stuck, client, event):
    pid, _ = client()
    said = event("client_stuck", daemon=PLACE[0], gpu_uuid=PLACE[1], details={"pids": [pid]})
    stuck.recall([replace(said, at=said.at - timedelta(hours=1))], now=datetime.now(UTC))
    assert published(latest) == ()


def test_what_a_journal_holds_instead_of_pids_is_no_client(latest, stuck, event):
    stuck.recall([event("client_stuck", details={"pids": ["x", None]}), event("client_stuck")], now=datetime.now(UTC))
    assert latest.view().stuck == {}
