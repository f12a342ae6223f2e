"""Verdicts: enforced only where SM count, membership and the curve's order agree, and never by throughput alone."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpswatch.documents import Cell, SmExpectation
from mpswatch.evidence.verdict import OUT_OF_ORDER, doubts, verdicts

TOTAL = 132
H200 = {"100": (132, 742.0), "75": (98, 587.0), "50": (66, 436.0), "25": (32, 223.0), "10": (12, 85.0)}


def cell(cap: str, sm_count: int | None, tflops: float | None, *, managed: bool | None = True, **changes: Any) -> Cell:
    share = TOTAL * float(cap) / 100
    told: dict[str, Any] = {
        "cap": cap,
        "iters": 80,
        "size": 4096,
        "seconds": None if tflops is None else 11.0 / tflops,
        "tflops": tflops,
        "client_reported_pid": 1,
        "client_pid_is_namespaced": False,
        "mps_clients_joined_during_cell": (1,),
        "self_was_managed": managed,
        "managed_clients_after_cell": (),
        "state": "unknown" if tflops is None else "measured",
        "unknown_reason": "deadline" if tflops is None else None,
        "sm_count": sm_count,
        "sm_count_expected": SmExpectation(total=TOTAL, at_most=max(share, 8), above=share - 8),
    }
    return Cell(**{**told, **changes})


def said(cells: list[Cell]) -> dict[str, str]:
    return {cell.cap: verdict.verdict for cell, verdict in zip(cells, verdicts(cells), strict=True)}


def curve(**changes: tuple[int, float]) -> list[Cell]:
    return [cell(cap, *changes.get(f"at_{cap}", pair)) for cap, pair in H200.items()]


def test_the_curve_of_a_working_stack_is_enforced_at_every_cap() -> None:
    assert said(curve()) == dict.fromkeys(H200, "enforced")


def test_a_cap_that_was_ignored_is_not_enforced() -> None:
    """Recording bad-caps: a value that MPS does not understand runs on all 132, without a word."""
    assert said(curve(at_50=(132, 742.0)))["50"] == "not_enforced"


def test_under_a_lower_default_no_larger_cap_can_be_judged() -> None:
    """Recording daemon-default-percentage: the lower of default and cap applies, which flattens the curve."""
    flat = said(curve(at_100=(66, 437.0), at_75=(66, 436.0)))
    assert (flat["100"], flat["75"], flat["50"]) == ("unknown", "unknown", "enforced")


def test_a_curve_that_contradicts_the_sm_counts_decides_nothing() -> None:
    cells = curve(at_25=(32, 460.0))
    assert said(cells)["25"] == "unknown"
    assert "contradicts" in verdicts(cells)[3].evidence[-1]


def test_each_cap_that_is_not_enforced_has_one_line_that_says_why() -> None:
    cells = [*curve(at_75=(98, 800.0), at_50=(132, 742.0), at_25=(16, 100.0)), cell("5", None, None)]
    judged = [
        msgspec.structs.replace(one, verdict=verdict) for one, verdict in zip(cells, verdicts(cells), strict=True)
    ]
    lines = [
        (
            "75 % unknown: the client saw 98 of 132 SMs; 75 % implies at most 99; its 800 TFLOPS are more than the 742"
            " of 100 %, which saw 132 SMs: the curve contradicts the SM counts"
        ),
        "50 % not enforced: the client saw 132 of 132 SMs; 50 % implies at most 66",
        (
            "25 % unknown: the client saw 16 of 132 SMs; 25 % implies at most 33; that is less than this cap implies"
            " (more than 25): a lower limit acts, not this cap"
        ),
        "5 % unknown: not measured as a managed client: deadline",
    ]
    assert list(doubts(judged)) == list(zip(("unknown", "not_enforced", "unknown", "unknown"), lines, strict=True))
    assert list(doubts(cells)) == [], "a run of before there were verdicts"


def test_one_cap_alone_is_judged_by_its_sm_count() -> None:
    assert said([cell("50", 66, 436.0)]) == {"50": "enforced"}


@pytest.mark.parametrize(
    "changes",
    [
        {"tflops": None, "managed": None},
        {"sm_count": None},
        {"sm_count_expected": None},
    ],
)
def test_what_is_not_known_is_unknown_with_the_reason(changes: dict[str, Any]) -> None:
    told = {"sm_count": 66, "tflops": 436.0, **changes}
    (verdict,) = verdicts([cell("50", **told)])
    assert verdict.verdict == "unknown"
    assert verdict.evidence


seen = st.one_of(st.none(), st.integers(1, TOTAL))
speeds = st.one_of(st.none(), st.floats(1, 1000))
caps = st.sampled_from([str(number) for number in range(1, 101)])


@st.composite
def sweeps(draw: st.DrawFn) -> list[Cell]:
    chosen = draw(st.lists(caps, min_size=1, max_size=6, unique=True))
    return [cell(cap, draw(seen), (speed := draw(speeds)), managed=True if speed else None) for cap in chosen]


@given(sweeps())
def test_every_cell_has_a_verdict_with_evidence_and_enforced_means_all_three(cells: list[Cell]) -> None:
    for one, verdict in zip(cells, verdicts(cells), strict=True):
        assert verdict.evidence
        if verdict.verdict != "unknown":
            assert one.self_was_managed is True
            assert one.sm_count is not None
            assert one.sm_count_expected is not None
            within = one.sm_count <= one.sm_count_expected.at_most
            assert within == (verdict.verdict == "enforced")
        if verdict.verdict == "enforced":
            for other in cells:
                if other.tflops and float(other.cap) > float(one.cap) and (other.sm_count or 0) > one.sm_count:
                    assert one.tflops <= other.tflops * (1 + OUT_OF_ORDER)


@given(sweeps(), st.randoms(use_true_random=False))
def test_the_order_of_the_cells_does_not_matter(cells: list[Cell], dice: Any) -> None:
    shuffled = list(cells)
    dice.shuffle(shuffled)
    assert said(shuffled) == said(cells)


@given(sweeps(), st.integers(0, 5))
def test_more_sms_than_implied_are_never_enforced(cells: list[Cell], which: int) -> None:
    one = cells[which % len(cells)]
    wide = cell(one.cap, TOTAL + 1, 500.0)
    changed = [wide if other is one else other for other in cells]
    assert said(changed)[one.cap] == "not_enforced"


def test_throughput_alone_never_makes_a_verdict() -> None:
    """mps-facts 4: outside MPS the program runs as fast as under 100 %."""
    for (one, fast), (other, slow) in itertools.permutations([("100", 742.0), ("50", 436.0)], 2):
        assert set(said([cell(one, None, fast), cell(other, None, slow)]).values()) == {"unknown"}
