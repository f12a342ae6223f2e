"""Ended from outside at any step: what was measured stays, every other cap says why not, and the clients leave."""

from __future__ import annotations

import threading
import time

import pytest

from mpswatch.documents import Reason, SweepDocument
from mpswatch.sweep import progress as steps
from mpswatch.sweep.permit import Refusal


def stop_at(desk, kind):
    def watch(step):
        if isinstance(step, kind):
            desk.stop.request()

    desk.watch = watch


def test_a_sweep_that_is_stopped_before_it_begins_asks_nobody(desk):
    desk.stop.request()
    assert desk.sweep().reason is Reason.STOPPED
    assert desk.looks == 0


@pytest.mark.parametrize("kind", [steps.Importing, steps.Ready])
def test_stopped_before_the_first_cell_it_is_a_refusal(desk, kind):
    stop_at(desk, kind)
    outcome = desk.sweep()
    assert isinstance(outcome, Refusal)
    assert outcome.reason is Reason.STOPPED
    assert desk.ours_alive() == []


@pytest.mark.parametrize("kind", [steps.CellStarted, steps.CellAttached, steps.CellMeasuring])
def test_stopped_within_a_cell_no_number_comes_of_it_and_its_client_leaves(desk, kind):
    stop_at(desk, kind)
    began = time.monotonic()
    swept = desk.sweep()
    assert isinstance(swept, SweepDocument)
    assert [cell.unknown_reason for cell in swept.cells] == ["stopped", "stopped"]
    assert time.monotonic() - began < desk.plan.drain_deadline
    assert desk.ours_alive() == []


def test_stopped_between_cells_the_first_keeps_its_number(desk):
    stop_at(desk, steps.CellDone)
    swept = desk.sweep()
    assert [cell.unknown_reason for cell in swept.cells] == [None, "stopped"]
    assert swept.tflops_by_cap.value == {"100": swept.cells[0].tflops, "50": None}
    assert swept.partial_run_note.startswith("1 of 2 caps have a number. 50 %: stopped")


def test_a_wish_to_stop_can_come_from_another_thread_while_the_sweep_waits(desk):
    timer = threading.Timer(0.1, desk.stop.request)

    def watch(step):
        if isinstance(step, steps.CellStarted):
            timer.start()

    desk.watch = watch
    swept = desk.sweep("child:slow")
    timer.join()
    assert [cell.unknown_reason for cell in swept.cells] == ["stopped", "stopped"]
    assert "100 heard bye" in desk.notes()
    assert desk.ours_alive() == []


def test_the_sweeps_own_deadline_leaves_the_rest_unmeasured(desk):
    swept = desk.sweep("child:slow", caps=("100", "50", "25"), sweep_deadline=2.5)
    assert swept.cells[-1].unknown_reason == "deadline"
    late = next(cell for cell in swept.cells if cell.state == "unknown")
    assert "the sweep's" in late.failure
    assert desk.ours_alive() == []


def at_the_first_done(desk, change):
    def watch(step):
        if isinstance(step, steps.CellDone) and step.order == 1:
            change()

    desk.watch = watch


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"server_state": "FAULT"}, "server_fault"),
        ({"start_ticks": 1}, "server_changed"),
        ({"clients": tuple(range(1, 47))}, "server_full"),
        ({"uid": 12345}, "uid_mismatch"),
    ],
)
def test_the_preflight_is_asked_again_before_each_cell(desk, changes, reason):
    at_the_first_done(desk, lambda: desk.server_changes.update(changes))
    swept = desk.sweep()
    assert [cell.unknown_reason for cell in swept.cells] == [None, reason]
    assert [note for note in desk.notes() if note.startswith("50")] == []


def test_a_control_daemon_that_falls_silent_between_cells_ends_the_sweep(desk, build):
    silent = {"up": None, "up_reason": Reason.DAEMON_SILENT, "servers": build.unknown(Reason.DAEMON_SILENT)}
    at_the_first_done(desk, lambda: desk.daemon_changes.update(silent))
    swept = desk.sweep()
    assert [cell.unknown_reason for cell in swept.cells] == [None, "daemon_silent"]
    assert swept.managed_clients_after.unknown_reason == "daemon_silent"


def test_a_control_daemon_that_falls_silent_within_a_cell_leaves_no_number(desk, build):
    silent = {"up": None, "up_reason": Reason.DAEMON_SILENT, "servers": build.unknown(Reason.DAEMON_SILENT)}

    def watch(step):
        if isinstance(step, steps.CellMeasuring):
            desk.daemon_changes.update(silent)

    desk.watch = watch
    swept = desk.sweep()
    first = swept.cells[0]
    assert first.unknown_reason == "daemon_silent"
    assert first.managed_clients_after_cell is None
    assert first.unknown["managed_clients_after_cell"] is Reason.DAEMON_SILENT
    assert desk.ours_alive() == []
