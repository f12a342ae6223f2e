"""Caps as the driver reads them, and what they imply."""

from __future__ import annotations

import contextlib
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpswatch.documents import Reason
from mpswatch.sweep.plan import Plan, PlanError, canonical_cap, tflops
from mpswatch.sweep.sm import as_expected, expectation


@pytest.mark.parametrize(
    ("given", "shortest"),
    [(100, "100"), ("100.0", "100"), (" 12.50 ", "12.5"), ("1e1", "10"), (Decimal("1.0"), "1"), (33.3, "33.3")],
)
def test_a_cap_is_its_shortest_decimal_string(given, shortest):
    assert canonical_cap(given) == shortest


@pytest.mark.parametrize(
    "cap", [0, -5, 101, "abc", "", "0.5", "nan", "inf", "1e400", "100.0000001", "1.23456789", None]
)
def test_what_the_driver_would_ignore_without_a_word_is_refused(cap):
    with pytest.raises(PlanError) as caught:
        canonical_cap(cap)
    assert caught.value.reason is Reason.CAP_OUT_OF_RANGE


@given(st.decimals(min_value=1, max_value=100, places=3))
def test_the_shortest_string_is_the_same_number_without_an_exponent(cap):
    text = canonical_cap(cap)
    assert Decimal(text) == cap
    assert set(text) <= set("0123456789.")
    assert canonical_cap(text) == text


@given(st.text())
def test_any_text_is_a_cap_or_a_named_error(text):
    with contextlib.suppress(PlanError):
        assert 1 <= float(canonical_cap(text)) <= 100


def test_a_plan_keeps_its_caps_in_their_order_and_canonical():
    assert Plan(caps=("50.0", "100")).caps == ("50", "100")


@pytest.mark.parametrize(
    "changes",
    [{"caps": ()}, {"caps": ("50", "50.0")}, {"iters": 0}, {"size": 8}, {"samples": 101}, {"cell_deadline": 0}],
)
def test_a_plan_that_cannot_be_run_is_not_made(changes):
    with pytest.raises(PlanError):
        Plan(**changes)


@pytest.mark.parametrize(
    ("cap", "seen"), [("100", 132), ("80", 104), ("75", 98), ("50", 66), ("25", 32), ("10", 12), ("1", 8), ("5", 8)]
)
def test_what_the_h200_showed_under_each_cap_is_expected(cap, seen):
    assert as_expected(seen, expectation(132, cap))


@pytest.mark.parametrize(("cap", "seen"), [("50", 132), ("50", 58), ("50", 68), ("10", 16), ("100", 124)])
def test_a_cap_that_did_not_take_hold_is_not_expected(cap, seen):
    assert not as_expected(seen, expectation(132, cap))


def test_no_cell_sees_more_than_the_100_percent_cell_did():
    assert not as_expected(66, expectation(132, "50"), seen_at_full=64)


def test_tflops_are_counted_as_in_the_reference_document():
    assert round(tflops(size=4096, iters=80, seconds=0.22185), 2) == 49.56
