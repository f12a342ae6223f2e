"""Pairs on a rehearsed stack: every pair keeps its cell, alone is measured on both sides, and nobody is harmed."""

from __future__ import annotations

import json
import threading
from typing import Any

import jsonschema
import pytest

from mpswatch.documents import InterferenceDocument, Reason, from_json, json_schema, to_json
from mpswatch.sweep import progress as steps
from mpswatch.sweep.bench import CellError, Seen
from mpswatch.sweep.matrix import Group, Matrix, cells_of
from mpswatch.sweep.messages import Result, SustainedSaid
from mpswatch.sweep.pair import Load, Paired, Window
from mpswatch.sweep.permit import Refusal
from mpswatch.sweep.plan import PlanError

SHORT = Window(settle=0.05, length=0.12, block=0.01)
SMALL = Matrix(caps=("25", "75"), kinds=("matmul", "stream"), mixed_cap="75", window=SHORT)


def paired(victim, samples=(), failure=None):
    """What came of one client, alone; its permit is of no concern here."""
    seen = Seen(order=1, cap=victim.cap)
    if samples:
        said = SustainedSaid(samples=samples, settled=True, settle_seconds=0.1, seconds=0.1, iterations=9)
        seen.result = Result(order=1, cap=victim.cap, seconds=0.1, clock="cuda_event", dtype="fp16", sustained=said)
    return Paired(victim=seen, aggressor=None, failure=failure, over=None, left=(), permit=None)


def test_the_matrix_of_the_issue_has_16_pairs_of_like_kind_and_9_mixed():
    groups = dict(Matrix().groups())
    alike = {
        (victim.cap, other.cap)
        for victim, beside in groups.items()
        for other in beside
        if victim.kind == other.kind == "matmul"
    }
    mixed = {
        (victim.kind, other.kind)
        for victim, beside in groups.items()
        for other in beside
        if victim.cap == other.cap == "50"
    }
    assert len(alike) == 16
    assert len(mixed) == 9
    assert sum(len(beside) for beside in groups.values()) == 24, (
        "matmul at 50 beside matmul at 50 is in both, and run once"
    )


def test_pairs_are_measured_and_every_one_keeps_its_cell(room):
    found = room.interference(matrix=SMALL)
    assert isinstance(found, InterferenceDocument), found
    assert found.complete, found.partial_run_note
    assert found.simulated
    assert [(cell.victim_cap, cell.victim_kind) for cell in found.solo] == [
        ("25", "matmul"),
        ("75", "matmul"),
        ("75", "stream"),
    ]
    assert len(found.pairs) == 4 + 3
    for cell in found.pairs:
        assert cell.victim_pid != cell.aggressor_pid
        assert cell.victim.value > 0
        assert cell.aggressor.value > 0
        assert cell.slowdown < 1
        assert cell.victim_sm_count == {"25": 32, "75": 98}[cell.victim_cap]
        assert cell.victim.unit == {"matmul": "TFLOPS", "stream": "GB/s"}[cell.victim_kind]
    jsonschema.validate(json.loads(to_json(found)), json_schema(InterferenceDocument))
    assert from_json(to_json(found), InterferenceDocument) == found
    assert room.nobody_harmed()
    assert room.free()
    assert [fact.plan for fact in room.facts] == ["interference"]


def test_where_alone_failed_the_slowdown_is_unknown_for_the_reason_why_alone_is():
    victim, aggressor = Load(cap="25", kind="matmul"), Load(cap="75", kind="matmul")
    died = CellError(Reason.CLIENT_DIED, "exit status 1")
    group = Group(victim=victim)
    group.take(1, None, paired(victim, failure=died))
    group.take(2, aggressor, paired(victim, samples=(0.001,) * 9))
    group.take(3, None, paired(victim, failure=died))
    not_run = Refusal(reason=Reason.NOT_RUN, detail="not run")
    alone, (pair,) = cells_of(group, (aggressor,), not_run, size=96, simulated=False)
    assert alone.unknown_reason == "client_died"
    assert pair.victim.count == 9
    assert pair.slowdown is None
    assert pair.unknown == {"slowdown": Reason.CLIENT_DIED}
    assert "exit status 1" in pair.failure


def test_alone_is_measured_before_and_after_a_victims_pairs(room):
    said: list[tuple[str, str | None]] = []

    def watch(step: steps.Progress) -> None:
        if isinstance(step, steps.PairStarted):
            said.append((step.victim, step.beside))

    room.interference(watch, matrix=Matrix(caps=("50",), kinds=("matmul",), window=SHORT))
    assert said == [("matmul at 50 %", None), ("matmul at 50 %", "matmul at 50 %"), ("matmul at 50 %", None)]


def test_a_stop_in_the_midst_lets_both_drain_and_keeps_every_cell(room):
    def watch(step: steps.Progress) -> None:
        if isinstance(step, steps.PairStarted) and step.order == 2:
            threading.Timer(0.4, room.stop.request).start()

    found = room.interference(
        watch, matrix=Matrix(caps=("25", "75"), kinds=("matmul",), window=Window(settle=0.1, length=3.0))
    )
    assert isinstance(found, InterferenceDocument)
    assert not found.complete
    assert len(found.pairs) == 5
    assert {cell.unknown_reason for cell in found.pairs} == {"stopped"}
    assert room.nobody_harmed()
    assert room.free()


def test_a_pair_needs_two_places_of_the_server(room):
    """One client more than a sweep: where only one place is left above the head-room, it is refused."""
    limits = room.limits
    room.limits = limits.__class__(client_uid=limits.client_uid, settle=0, context_limit=7, headroom=4)
    refused = room.interference(matrix=SMALL)
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.SERVER_FULL


@pytest.mark.parametrize("wrong", [{"caps": ("0",)}, {"caps": ()}, {"mixed_cap": "101"}])
def test_a_matrix_that_mps_would_not_understand_is_refused(wrong: dict[str, Any]):
    with pytest.raises(PlanError):
        Matrix(**wrong)


def test_a_load_is_its_cap_and_its_kind():
    assert Load(cap="50", kind="matmul") in dict(Matrix().groups())
