"""Verdicts, intervals and interference as metrics: present where they were measured, silent elsewhere."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from mpswatch.documents import (
    CapVerdict,
    Figure,
    InterferenceDocument,
)
from mpswatch.metrics import families


def shown(latest: Any, name: str) -> dict[tuple[str, ...], float]:
    return next(family.samples for family in families(latest.view()) if family.spec.name == f"mpswatch_{name}")


def figure(tflops: float) -> Figure:
    return Figure(
        tflops=tflops,
        interval_low=tflops * 0.99,
        interval_high=tflops * 1.01,
        confidence=0.95,
        within_width=True,
        spread=0.02,
        between_repeats=0.001,
        count=8,
        repeats=2,
    )


def thorough(facts: Any) -> Any:
    swept = facts.sweep()
    cells = tuple(
        replace(
            cell,
            burst=figure(742.0),
            sustained=figure(647.0),
            verdict=CapVerdict(verdict="enforced", evidence=("seen",)),
        )
        for cell in swept.cells
    )
    return replace(swept, cells=cells, protocol=replace(swept.protocol, plan="thorough"), run_id="thorough-1")


def interference(facts: Any, at: Any = None, pairs: int = 1) -> InterferenceDocument:
    victim = ("25", "matmul")
    cells = tuple(facts.pair(number, victim, (str(number), "matmul"), 0.28) for number in range(1, pairs + 1))
    return facts.interference(at or facts.NOON, solo=(), pairs=cells)


def test_burst_and_sustained_never_share_a_series(latest, facts):
    latest.record(facts.sweep())
    latest.record(thorough(facts))
    assert {labels[2] for labels in shown(latest, "cap_tflops")} == {"quick", "thorough"}
    sustained = shown(latest, "cap_sustained_tflops")
    assert {labels[2] for labels in sustained} == {"thorough"}
    assert set(sustained.values()) == {647.0}
    assert set(shown(latest, "cap_tflops_interval_low").values()) == {742.0 * 0.99}
    assert {labels[2] for labels in shown(latest, "cap_sustained_tflops_interval_high")} == {"thorough"}


def test_each_quantity_has_its_own_clock_and_power(latest, facts):
    latest.record(facts.thorough())
    clocks, power = shown(latest, "cap_sm_clock_hertz"), shown(latest, "cap_power_watts")
    of_all = (facts.DAEMON, facts.GPU, "thorough", "100")
    assert (clocks[*of_all, "burst"], clocks[*of_all, "sustained"]) == (1980e6, 1485e6)
    assert (power[*of_all, "burst"], power[*of_all, "sustained"]) == (390.0, 690.0)


def test_a_quick_run_has_the_clock_after_its_one_pass_as_that_of_its_burst(latest, facts):
    after = facts.conditions(sm_clock_mhz=1980, power_watts=163.0)
    latest.record(facts.sweep(cells=(facts.cell("50", conditions_after=after), facts.cell("25"))))
    assert shown(latest, "cap_sm_clock_hertz") == {(facts.DAEMON, facts.GPU, "quick", "50", "burst"): 1980e6}
    assert shown(latest, "cap_power_watts") == {(facts.DAEMON, facts.GPU, "quick", "50", "burst"): 163.0}


def test_a_verdict_is_one_series_a_state(latest, facts):
    latest.record(thorough(facts))
    said = shown(latest, "cap_verdict")
    assert {labels[4] for labels in said} == {"enforced", "not_enforced", "unknown"}
    assert {labels[4] for labels, value in said.items() if value == 1} == {"enforced"}


def test_a_run_without_verdicts_has_no_verdict_series(latest, facts):
    latest.record(facts.sweep())
    assert shown(latest, "cap_verdict") == {}


def test_interference_is_published_with_its_interval_and_its_time(latest, facts):
    latest.record(interference(facts))
    ((labels, value),) = shown(latest, "interference_slowdown_ratio").items()
    assert labels == (facts.DAEMON, facts.GPU, "25", "matmul", "1", "matmul")
    assert value == 0.28
    assert list(shown(latest, "interference_slowdown_ratio_interval_high").values()) == pytest.approx([0.285])
    assert list(shown(latest, "interference_last_run_timestamp_seconds").values()) == [facts.NOON.timestamp()]


def test_interference_is_bounded_however_many_pairs_were_measured(latest, facts):
    latest.record(interference(facts, pairs=140))
    assert len(shown(latest, "interference_slowdown_ratio")) == 100


def test_interference_goes_stale_and_keeps_its_time(latest, facts, clock):
    latest.record(interference(facts))
    clock.wait(3 * 3600 + 1)
    assert shown(latest, "interference_slowdown_ratio") == {}
    assert shown(latest, "interference_complete") == {}
    assert len(shown(latest, "interference_last_run_timestamp_seconds")) == 1


def test_interference_of_an_earlier_process_has_its_own_age(latest, facts):
    long_ago = facts.NOON - timedelta(hours=4)
    latest.restore([interference(facts, at=long_ago)], now=facts.NOON)
    assert shown(latest, "interference_slowdown_ratio") == {}
    latest.restore([interference(facts)], now=facts.NOON)
    assert len(shown(latest, "interference_slowdown_ratio")) == 1


def test_a_refused_interference_is_a_refusal_until_the_next_one_is_measured_and_no_missing_sweep(latest, facts):
    latest.record(facts.refusal(plan="interference"))
    assert list(shown(latest, "last_sweep_refused").values()) == [1]
    assert shown(latest, "cap_unknown") == {}
    assert latest.view().to_measure == ()
    latest.record(interference(facts))
    assert shown(latest, "last_sweep_refused") == {}
    counted = shown(latest, "sweeps_total")
    assert {labels[-1]: value for labels, value in counted.items()} == {"refused": 1, "complete": 1}


def test_interference_that_another_process_measured_ends_a_refusal_too_and_an_older_one_does_not_come_back(
    latest, facts
):
    latest.record(facts.refusal(plan="interference"))
    later = facts.NOON + timedelta(minutes=5)
    latest.restore([interference(facts, at=later)], now=later)
    assert shown(latest, "last_sweep_refused") == {}
    latest.restore([interference(facts)], now=later)
    assert list(shown(latest, "interference_last_run_timestamp_seconds").values()) == [later.timestamp()]
