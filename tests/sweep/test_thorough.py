"""The thorough plan: two figures of different names with their intervals, from repeats that are interleaved."""

from __future__ import annotations

import json
import statistics
import threading
import time
from typing import Any

import jsonschema
import pytest

from mpswatch.documents import SweepDocument, from_json, json_schema, to_json
from mpswatch.sweep import progress as steps
from mpswatch.sweep.permit import Refusal
from mpswatch.sweep.plan import Plan, PlanError, Thorough
from mpswatch.sweep.rounds import Rounds

QUICK = Thorough(
    passes=3, rest=0.005, settle_least=0.03, settle_most=0.1, sustain=0.05, block=0.01, rounds_least=2, rounds_most=2
)


def thorough(room: Any, watch: Any = None, settings: Thorough = QUICK, **plan: Any) -> SweepDocument | Refusal:
    return room.sweep(watch, name="thorough", thorough=settings, **plan)


def test_a_thorough_sweep_gives_each_cap_two_figures_that_have_their_names(room):
    swept = thorough(room)
    assert isinstance(swept, SweepDocument), swept
    assert swept.complete_sweep, swept.partial_run_note
    assert swept.protocol.plan == "thorough"
    assert swept.protocol.cells_run == ("100", "50", "50", "100"), "there and back"
    assert [cell.cap for cell in swept.cells] == ["100", "50"]
    for cell in swept.cells:
        burst, sustained = cell.burst, cell.sustained
        assert burst is not None
        assert sustained is not None
        assert (burst.count, burst.repeats) == (6, 2)
        assert sustained.count >= 6
        assert burst.interval_low <= burst.tflops <= burst.interval_high
        assert sustained.interval_low <= sustained.tflops <= sustained.interval_high
        assert sustained.settled is not None
        assert "SMs" in cell.verdict.evidence[1]
        assert cell.verdict.verdict != "not_enforced"
    assert room.nobody_harmed()
    assert room.free()


def test_seconds_and_tflops_keep_the_quick_protocols_meaning(room):
    """One pass of exactly `iters`: the median one of those that were run."""
    swept = thorough(room)
    assert isinstance(swept, SweepDocument)
    for cell in swept.cells:
        passes = [seconds for repeat in cell.repeats for seconds in repeat.passes]
        assert cell.seconds in passes
        assert cell.seconds == statistics.median_low(passes)
        assert cell.tflops == pytest.approx(2 * cell.size**3 * cell.iters / cell.seconds / 1e12)
        assert cell.burst.tflops == pytest.approx(cell.tflops)
        assert swept.tflops_by_cap.value[cell.cap] == cell.tflops


def test_each_repeat_is_a_client_of_its_own(room):
    swept = thorough(room)
    assert isinstance(swept, SweepDocument)
    repeats = [repeat for cell in swept.cells for repeat in cell.repeats]
    assert sorted(repeat.order for repeat in repeats) == [1, 2, 3, 4]
    assert len({repeat.client_pid for repeat in repeats}) == 4
    assert {repeat.state for repeat in repeats} == {"simulated"}


def test_the_document_states_the_cache_the_method_and_the_conditions(room):
    swept = thorough(room)
    assert isinstance(swept, SweepDocument)
    assert "not flushed" in swept.protocol.l2_state
    assert "order statistics" in swept.protocol.interval_method
    assert "normal(0, 1)" in swept.protocol.input_values
    for cell in swept.cells:
        assert cell.burst.conditions_before.sm_clock_mhz is not None
        assert cell.sustained.conditions_after.power_watts is not None
        assert cell.sustained.conditions_during.count >= 0
    jsonschema.validate(json.loads(to_json(swept)), json_schema(SweepDocument))
    assert from_json(to_json(swept), SweepDocument) == swept


def test_a_quick_sweep_has_neither_figure_and_a_verdict_all_the_same(room):
    swept = room.sweep()
    assert isinstance(swept, SweepDocument)
    assert [(cell.burst, cell.sustained, cell.repeats) for cell in swept.cells] == [(None, None, ())] * 2
    # on a busy machine the curve may contradict the SM counts: then a verdict is unknown
    assert "not_enforced" not in [cell.verdict.verdict for cell in swept.cells]
    assert all(cell.verdict.evidence for cell in swept.cells)


def test_a_stop_keeps_what_was_measured_and_says_what_is_missing(room):
    def watch(step: steps.Progress) -> None:
        if isinstance(step, steps.CellStarted) and step.order == 3:
            room.stop.request()

    swept = thorough(room, watch)
    assert isinstance(swept, SweepDocument)
    first, second = swept.cells
    assert first.state == "simulated"
    assert first.burst.repeats == 1
    assert "stopped" in first.failure
    assert second.burst is not None
    assert room.nobody_harmed()


def test_stopped_in_the_first_round_the_other_caps_are_unknown_with_the_reason(room):
    def watch(step: steps.Progress) -> None:
        if isinstance(step, steps.CellMeasuring):
            threading.Timer(0.02, room.stop.request).start()

    swept = thorough(room, watch, settings=Thorough(passes=50, rest=0.1))
    assert isinstance(swept, SweepDocument)
    assert not swept.complete_sweep
    assert {cell.unknown_reason for cell in swept.cells} == {"stopped"}
    assert all(cell.verdict.verdict == "unknown" for cell in swept.cells)
    assert room.nobody_harmed()
    assert room.free()


def test_a_refusal_is_a_refusal_for_a_thorough_sweep_too(room):
    room.limits = room.limits.__class__(client_uid=room.limits.client_uid, settle=1e6)
    assert isinstance(thorough(room), Refusal)


def test_rounds_go_there_and_back_and_then_only_where_there_is_doubt():
    settings = Thorough(rounds_least=2, rounds_most=4, budget=10)
    rounds = Rounds(Plan(name="thorough", thorough=settings), settings)
    assert rounds.next(0.0) == ("100", "75", "50", "25", "10")
    assert rounds.next(99.0) == ("10", "25", "50", "75", "100"), "two there must be, whatever the budget"
    assert rounds.next(10.0) == (), "beyond the budget no further one is begun"
    assert rounds.next(5.0) == ("100", "75", "50", "25", "10"), "without any sample every cap is in doubt"
    assert rounds.next(5.0) == ("10", "25", "50", "75", "100")
    assert rounds.next(5.0) == (), "never more than four"


@pytest.mark.parametrize(
    "wrong",
    [{"passes": 0}, {"rounds_least": 3, "rounds_most": 2}, {"interval_width": 0}, {"settle_most": 0.01}, {"rest": -1}],
)
def test_a_plan_that_could_not_be_carried_out_is_refused(wrong: dict[str, Any]):
    with pytest.raises(PlanError):
        Thorough(**wrong)


def test_a_plan_says_how_it_is_thorough_or_is_not():
    with pytest.raises(PlanError):
        Plan(name="thorough")
    with pytest.raises(PlanError):
        Plan(thorough=QUICK)


def test_the_deadline_of_the_sweep_ends_a_thorough_one(room):
    began = time.monotonic()
    swept = thorough(room, settings=Thorough(passes=20, rest=0.2), sweep_deadline=2.5)
    assert time.monotonic() - began < 10
    assert isinstance(swept, SweepDocument | Refusal)
    assert room.nobody_harmed()
