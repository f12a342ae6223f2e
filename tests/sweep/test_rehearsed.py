"""A whole sweep with the real client, the real poller and a rehearsed stack: documents, faults, and nobody harmed."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from mpswatch.documents import SweepDocument, from_json, json_schema, to_json
from mpswatch.sweep import progress as steps
from mpswatch.sweep.permit import Refusal
from mpswatch.sweep.stop import Stop

REFERENCE = Path(__file__).parents[1] / "reference" / "mps-cap-sweep.v1.json"


def test_a_rehearsed_sweep_is_complete_and_says_that_it_is_simulated(room):
    swept = room.sweep(caps=("100", "75", "50", "25", "10"))
    assert isinstance(swept, SweepDocument), swept
    assert swept.complete_sweep, swept.partial_run_note
    assert swept.simulated
    assert {cell.state for cell in swept.cells} == {"simulated"}
    assert swept.tflops_by_cap.state == "simulated"
    assert [cell.sm_count for cell in swept.cells] == [132, 98, 66, 32, 12]
    assert all(cell.sm_count_as_expected for cell in swept.cells)
    assert all(cell.managed_clients_after_cell == tuple(sorted(room.services)) for cell in swept.cells)
    assert swept.managed_clients_before.value == swept.managed_clients_after.value == tuple(sorted(room.services))
    (tenant,) = swept.unmanaged_tenants.value or ()
    assert tenant.used_memory_mb == 658
    assert swept.cells[4].tenants_present == (tenant,)
    assert swept.protocol.dtype == "float32"
    assert swept.cells[2].environment is not None
    assert swept.cells[2].environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert room.nobody_harmed()
    assert room.free()


def test_under_a_server_that_gives_each_client_less_the_run_says_so(room):
    room.stack.tell("restart", default_percentage=40.0, again=True)
    swept = room.sweep(caps=("100", "25"))
    assert isinstance(swept, SweepDocument), swept
    assert [cell.sm_count for cell in swept.cells] == [52, 32]
    assert [cell.sm_count_as_expected for cell in swept.cells] == [False, True]
    assert swept.mps.server_active_thread_percentage == 40
    assert swept.tflops_by_cap.evidence["server_active_thread_percentage"] == 40
    assert "the server gives each client less than 100 %" in swept.tflops_by_cap.evidence["default_note"]


def test_a_reader_of_the_reference_document_finds_every_key_of_it(room):
    swept = room.sweep()
    assert isinstance(swept, SweepDocument)
    ours, reference = json.loads(to_json(swept)), json.loads(REFERENCE.read_bytes())
    assert reference.keys() <= ours.keys()
    assert reference["protocol"].keys() <= ours["protocol"].keys()
    assert reference["cells"][0].keys() <= ours["cells"][0].keys()
    assert reference["tflops_by_cap"].keys() <= ours["tflops_by_cap"].keys()
    assert reference["unmanaged_tenants"]["value"][0].keys() <= ours["unmanaged_tenants"]["value"][0].keys()
    jsonschema.validate(ours, json_schema(SweepDocument))
    assert from_json(to_json(swept, indent=2), SweepDocument) == swept


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("refuse", "cuda_unavailable"),
        ("close", "cuda_unavailable"),
        ("nonsense", "cuda_unavailable"),
        ("unlisted", "not_managed"),
    ],
)
def test_a_client_that_is_not_received_as_it_should_be_leaves_no_number(room, how, reason):
    room.stack.tell("attach", how=how)
    swept = room.sweep()
    assert isinstance(swept, SweepDocument)
    assert swept.cells[0].unknown_reason == reason, swept.cells[0].failure
    assert room.nobody_harmed()
    assert room.free()


def test_a_client_that_the_driver_never_lets_in_is_stuck_until_it_does(room):
    room.stack.tell("attach", how="silent")
    swept = room.sweep(cell_deadline=0.3, drain_deadline=0.5)
    assert isinstance(swept, SweepDocument)
    assert swept.cells[0].unknown_reason == "client_stuck"
    (pid,) = swept.stuck_clients
    assert room.processes.start_ticks(pid) is not None
    assert [fact.kind for fact in room.facts] == ["sweep_started", "client_stuck"]
    again = room.sweep()
    assert isinstance(again, Refusal)
    assert again.reason == "client_left_over"
    room.stack.tell("honest")


def test_a_stop_at_any_moment_harms_nobody(room):
    for wait in (0.0, 0.02, 0.05):
        room.stop = Stop()
        timers = []

        def watch(step, wait=wait, timers=timers):
            if isinstance(step, steps.CellMeasuring) and not timers:
                timers.append(threading.Timer(wait, room.stop.request))
                timers[0].start()

        swept = room.sweep(watch, iters=400)
        timers[0].join()
        assert isinstance(swept, SweepDocument)
        assert swept.cells[1].unknown_reason == "stopped"
        assert room.free()
    assert room.nobody_harmed()


def test_a_server_that_is_replaced_between_two_cells_ends_the_sweep(room):
    def watch(step):
        if isinstance(step, steps.CellDone) and step.order == 1:
            room.stack.tell("replace_server", again=True)

    swept = room.sweep(watch)
    assert isinstance(swept, SweepDocument)
    assert [cell.unknown_reason for cell in swept.cells] == [None, "server_changed"]


def test_a_control_daemon_that_freezes_within_a_cell_leaves_no_number_and_no_client(room):
    def watch(step):
        if isinstance(step, steps.CellMeasuring):
            room.stack.tell("hang")

    swept = room.sweep(watch)
    room.stack.tell("resume")
    assert isinstance(swept, SweepDocument)
    assert swept.cells[0].unknown_reason in {"daemon_silent", "source_stuck"}
    assert room.nobody_harmed()
    assert room.free()


def test_a_full_server_is_refused_before_any_client_is_started(room):
    room.stack.tell("fill", leave=2)
    refused = room.sweep()
    assert isinstance(refused, Refusal)
    assert refused.reason == "server_full"
    assert room.facts == []


def test_two_sweeps_at_once_are_one_sweep_and_one_refusal(room):
    outcomes: list[SweepDocument | Refusal] = []
    second: list[threading.Thread] = []

    def watch(step):
        if isinstance(step, steps.Ready):
            second.append(threading.Thread(target=lambda: outcomes.append(room.sweep())))
            second[0].start()
            second[0].join()

    first = room.sweep(watch)
    assert isinstance(first, SweepDocument)
    assert first.complete_sweep
    (refused,) = outcomes
    assert isinstance(refused, Refusal)
    assert refused.reason == "sweep_running"


def test_a_young_server_is_refused_with_how_long_to_wait(room):
    room.limits = replace(room.limits, settle=120.0)
    refused = room.sweep()
    assert isinstance(refused, Refusal)
    assert refused.reason == "server_unsettled"
    assert refused.remedy is not None
    assert refused.remedy.startswith("wait 1")
