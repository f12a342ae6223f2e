"""Whatever the launcher or its child does, the outcome is a document or a refusal, and nobody is ended."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from mpswatch.documents import Event, Reason, SweepDocument, from_json, to_json
from mpswatch.sweep import progress as steps
from mpswatch.sweep.permit import Limits, Refusal
from mpswatch.sweep.runtime import ProcessRuntime


def document(outcome: SweepDocument | Refusal) -> SweepDocument:
    assert isinstance(outcome, SweepDocument), outcome
    assert from_json(to_json(outcome), SweepDocument) == outcome
    return outcome


def refusal(outcome: SweepDocument | Refusal) -> Refusal:
    assert isinstance(outcome, Refusal), outcome
    return outcome


def test_a_sweep_without_faults_is_complete(desk):
    swept = document(desk.sweep())
    assert swept.complete_sweep, swept.partial_run_note
    assert [cell.cap for cell in swept.cells] == ["100", "50"]
    for cell, sm_count in zip(swept.cells, (132, 66), strict=True):
        assert cell.state == "measured"
        assert cell.seconds == 0.008
        assert cell.tflops == pytest.approx(2 * 256**3 * 80 / 0.008 / 1e12)
        assert cell.self_was_managed is True
        assert cell.mps_clients_joined_during_cell == (cell.client_reported_pid,)
        assert cell.managed_clients_after_cell == swept.managed_clients_before.value
        assert cell.sm_count == sm_count
        assert cell.sm_count_as_expected is True
        assert cell.conditions_before is not None
        assert cell.timings is not None
        assert cell.timings.attached_to_gone is not None
    assert swept.tflops_by_cap.value == {cell.cap: cell.tflops for cell in swept.cells}
    assert swept.tflops_by_cap.measured_at == swept.cells[-1].measured_at
    assert swept.managed_clients_after.value == swept.managed_clients_before.value == desk.clients()
    assert desk.notes()[1:] == ["100 heard go", "100 heard bye", "50 heard go", "50 heard bye"]
    assert desk.ours_alive() == []


def test_a_sweep_says_each_step(desk):
    desk.sweep()
    a_cell = ["CellStarted", "CellAttached", "CellMeasuring", "CellDone"]
    assert [type(step).__name__ for step in desk.steps] == ["Importing", "Ready", *a_cell, *a_cell, "Finished"]


def test_the_start_is_recorded_before_the_launcher_starts(desk):
    class Watched(ProcessRuntime):
        def start(self, **where):
            assert [fact.kind for fact in desk.facts] == ["sweep_started"]
            return super().start(**where)

    outcome = desk.sweep_with(Watched(python="/no/such/python", client=desk.directory))
    assert refusal(outcome).reason is Reason.CLIENT_PROGRAM_MISSING
    started = desk.facts[0]
    assert isinstance(started, Event)
    assert started.run_id
    assert started.details["caps"] == "100,50"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("launcher:dies", Reason.CLIENT_DIED),
        ("launcher:killed", Reason.CLIENT_DIED),
        ("launcher:cut", Reason.CLIENT_DIED),
        ("launcher:nonsense", Reason.CLIENT_NONSENSE),
        ("launcher:long", Reason.CLIENT_NONSENSE),
        ("launcher:two", Reason.CLIENT_NONSENSE),
        ("launcher:neither", Reason.CLIENT_NONSENSE),
        ("launcher:numpy", Reason.NOT_SUPPORTED),
        ("launcher:unlocked", Reason.SWEEP_RUNNING),
        ("launcher:failed=sweep_running", Reason.SWEEP_RUNNING),
        ("launcher:failed=client_import_failed", Reason.CLIENT_IMPORT_FAILED),
        ("launcher:failed=paused", Reason.CLIENT_ERROR),
        ("launcher:failed=everything is fine", Reason.CLIENT_ERROR),
    ],
)
def test_a_launcher_that_does_not_get_ready_is_a_refusal(desk, fault, reason):
    refused = refusal(desk.sweep(fault))
    assert refused.reason is reason
    assert refused.detail.isprintable()
    assert desk.steps[-1] == steps.Refused(reason=reason, detail=refused.detail, remedy=refused.remedy)
    assert desk.ours_alive() == []


def test_the_last_words_of_a_launcher_are_quoted_and_cannot_move_the_cursor(desk):
    refused = refusal(desk.sweep("launcher:dies"))
    assert "exit status 3" in refused.detail
    assert "Segmentation \\x1b[31mfault" in refused.detail


def test_a_launcher_that_is_never_ready_is_left_alone_and_the_sweep_refused(desk):
    refused = refusal(desk.sweep("launcher:hangs", launch_deadline=0.4))
    assert refused.reason is Reason.DEADLINE
    assert len(desk.ours_alive()) == 1


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("cell:dies", Reason.CLIENT_DIED),
        ("cell:nonsense", Reason.CLIENT_NONSENSE),
        ("cell:failed=client_nonsense", Reason.CLIENT_NONSENSE),
        ("forked:dies", Reason.CLIENT_DIED),
        ("forked:killed", Reason.CLIENT_DIED),
        ("forked:long", Reason.CLIENT_NONSENSE),
        ("child:dies", Reason.CLIENT_DIED),
        ("child:killed", Reason.CLIENT_DIED),
        ("child:cut", Reason.CLIENT_NONSENSE),
        ("child:two", Reason.CLIENT_NONSENSE),
        ("child:failed=out_of_memory", Reason.OUT_OF_MEMORY),
        ("child:failed=server_full", Reason.SERVER_FULL),
        ("child:failed=cuda_unavailable", Reason.CUDA_UNAVAILABLE),
        ("child:failed=client_error,child:broken", Reason.CLIENT_ERROR),
        ("attached:order", Reason.CLIENT_NONSENSE),
        ("attached:device", Reason.CLIENT_NONSENSE),
        ("attached:dies", Reason.CLIENT_DIED),
        ("join:never", Reason.NOT_MANAGED),
        ("join:other_server", Reason.SERVER_CHANGED),
        ("go:dies", Reason.CLIENT_DIED),
        ("go:killed", Reason.CLIENT_DIED),
        ("go:nonsense", Reason.CLIENT_NONSENSE),
        ("go:failed=deadline", Reason.DEADLINE),
        ("result:leaves_list", Reason.NOT_MANAGED),
        ("result:lie", Reason.CLIENT_NONSENSE),
        ("result:negative", Reason.CLIENT_NONSENSE),
        ("result:zero", Reason.CLIENT_NONSENSE),
    ],
)
def test_a_fault_that_may_concern_more_than_its_cell_ends_the_sweep(desk, fault, reason):
    swept = document(desk.sweep(fault))
    first, second = swept.cells
    assert first.unknown_reason == reason.value, first.failure
    assert first.state == "unknown"
    assert first.tflops is None
    assert first.failure
    assert first.failure.isprintable()
    assert second.unknown_reason == Reason.NOT_RUN.value
    assert not swept.complete_sweep
    assert f"100 %: {reason.value}" in (swept.partial_run_note or "")
    assert swept.tflops_by_cap.value is None
    assert swept.tflops_by_cap.unknown_reason == Reason.ALL_CELLS_FAILED.value
    assert swept.stuck_clients == ()
    assert desk.ours_alive() == []


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("child:failed=kernel_too_long", Reason.KERNEL_TOO_LONG),
        ("child:failed=no such reason", Reason.CLIENT_ERROR),
        ("go:failed=client_error", Reason.CLIENT_ERROR),
        ("attached:pid", Reason.IDENTITY_AMBIGUOUS),
        ("join:twice", Reason.IDENTITY_AMBIGUOUS),
        ("join:other_pid", Reason.IDENTITY_AMBIGUOUS),
    ],
)
def test_a_fault_of_one_cell_leaves_the_others_their_turn(desk, fault, reason):
    swept = document(desk.sweep(fault))
    assert [cell.unknown_reason for cell in swept.cells] == [reason.value, reason.value]
    assert desk.ours_alive() == []


@pytest.mark.parametrize(
    "fault", ["attached:pid", "join:twice", "join:other_pid", "join:never", "join:other_server", "attached:device"]
)
def test_a_client_that_is_not_proven_to_be_managed_is_never_told_to_go(desk, fault):
    document(desk.sweep(fault))
    assert [note for note in desk.notes() if "heard go" in note] == []
    assert "100 heard bye" in desk.notes()


def test_a_client_outside_mps_is_said_to_be_unmanaged_and_one_of_doubtful_identity_is_not(desk):
    assert document(desk.sweep("join:never")).cells[0].self_was_managed is False
    assert document(desk.sweep("join:twice")).cells[0].self_was_managed is None


@pytest.mark.parametrize("fault", ["child:hangs", "attached:hangs", "go:hangs", "result:hangs"])
def test_a_client_that_does_not_leave_is_reported_and_left_alone(desk, fault):
    swept = document(desk.sweep(fault, cell_deadline=0.1, drain_deadline=0.3))
    first, second = swept.cells
    assert first.unknown_reason == Reason.CLIENT_STUCK.value
    assert second.unknown_reason == Reason.NOT_RUN.value
    (pid,) = swept.stuck_clients
    assert pid in desk.ours_alive()
    stuck = desk.facts[-1]
    assert isinstance(stuck, Event)
    assert stuck.kind == "client_stuck"
    assert stuck.details["pids"] == [pid]
    refused = refusal(desk.sweep())
    assert refused.reason is Reason.CLIENT_LEFT_OVER
    assert len(desk.launchers()) == 1


def test_a_client_that_the_driver_lets_in_late_is_not_told_to_go(desk):
    swept = document(desk.sweep("child:slow", cell_deadline=0.1, drain_deadline=5.0))
    assert swept.cells[0].unknown_reason == Reason.DEADLINE.value
    assert desk.notes()[1:] == ["100 heard bye"]
    assert desk.ours_alive() == []


def test_a_number_stands_when_its_client_leaves_badly_after_it_drained(desk):
    swept = document(desk.sweep("bye:status"))
    assert swept.complete_sweep, swept.partial_run_note
    assert "exit status 4" in (swept.cells[0].failure or "")


def test_a_number_stands_when_the_launcher_dies_after_it_and_no_further_cell_runs(desk):
    swept = document(desk.sweep("gone:dies"))
    assert [cell.unknown_reason for cell in swept.cells] == [None, Reason.NOT_RUN.value]
    assert swept.tflops_by_cap.value == {"100": swept.cells[0].tflops, "50": None}
    assert swept.tflops_by_cap.state == "measured"
    assert swept.stuck_clients == ()


def test_a_wrong_sm_count_is_published_beside_the_number(desk):
    swept = document(desk.sweep("attached:flat"))
    assert swept.complete_sweep, swept.partial_run_note
    assert [cell.sm_count_as_expected for cell in swept.cells] == [False, False]
    assert swept.tflops_by_cap.evidence["sm_counts"] == {"device": 132, "seen_at_100_percent": 8, "agree": False}


def test_without_the_devices_sm_count_there_is_no_expectation_but_a_reason(desk):
    desk.gpu_changes = {"sm_count": None, "unknown": {"sm_count": Reason.NOT_SUPPORTED}}
    cell = document(desk.sweep()).cells[0]
    assert (cell.sm_count, cell.sm_count_expected, cell.sm_count_as_expected) == (132, None, None)
    assert cell.unknown["sm_count_expected"] is Reason.NOT_SUPPORTED


def test_a_launcher_of_another_uid_than_the_preflights_gets_no_cell(desk):
    desk.limits = Limits(client_uid=os.geteuid() + 1, settle=0)
    desk.server_changes = {"uid": os.geteuid() + 1}
    assert refusal(desk.sweep()).reason is Reason.UID_MISMATCH
    assert len(desk.notes()) == 1


def test_a_spectator_that_fails_does_not_end_the_sweep(desk):
    def watch(step: object) -> None:
        raise BrokenPipeError

    desk.watch = watch
    assert document(desk.sweep()).complete_sweep
    assert [event for event, _ in desk.logged].count("progress is no longer shown") == 1


def test_a_server_that_our_first_cell_created_need_not_settle(desk):
    desk.no_server = True
    for path in (desk.directory / "clients").iterdir():
        path.unlink()
    desk.limits = replace(desk.limits, stack_uid=os.geteuid(), settle=120.0)
    desk.server_changes = {"age_seconds": 0.3}
    keeper: list[object] = []

    def watch(step: object) -> None:
        if isinstance(step, steps.CellMeasuring) and not keeper:
            keeper.append(desk.add_client())  # the server stays when our cell is gone

    desk.watch = watch
    swept = document(desk.sweep())
    assert swept.complete_sweep, swept.partial_run_note
    assert swept.managed_clients_before.value == ()
    assert swept.mps is not None
    assert swept.mps.server_pid == desk.server.pid
    keeper[0].kill()  # type: ignore[attr-defined]
    keeper[0].wait()  # type: ignore[attr-defined]
