"""Pairs as matrices: each pair in its place, a pair without a number with its reason, none lost."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mpswatch.documents import Reason
from mpswatch.evidence.matrices import matrices, rate_in_words


def shares(matrix):
    return [tuple(square.share for square in row.squares) for row in matrix.rows]


def test_caps_beside_caps_and_kinds_beside_kinds(facts):
    like, mixed = matrices(facts.interference())
    assert (like.title, like.columns) == ("matmul beside matmul", ("25 %", "50 %", "75 %", "100 %"))
    assert [[square.share for square in row.squares] for row in like.rows] == [
        list(row) for row in facts.MATRIX.values()
    ]
    assert [row.alone for row in like.rows] == ["226.0 TFLOPS", "429.0 TFLOPS", "541.0 TFLOPS", "647.0 TFLOPS"]
    assert (mixed.title, mixed.columns) == ("kinds of work, 50 % beside 50 %", ("matmul", "stream", "launch"))
    assert [[square.share for square in row.squares] for row in mixed.rows] == [
        list(row) for row in facts.KINDS.values()
    ]


def test_a_pair_that_failed_has_its_reason_and_one_that_was_never_to_be_has_none(facts):
    document = facts.interference(failed={("25", "100"): Reason.DEADLINE})
    (like, _) = matrices(document)
    assert like.rows[0].squares[3].text == "unknown: deadline"
    without = replace(document, pairs=document.pairs[1:])
    assert matrices(without)[0].rows[0].squares[-1].text == ""


def test_a_pair_that_fits_nowhere_is_among_the_others(facts):
    odd = facts.pair(99, ("25", "stream"), ("75", "launch"), 0.1)
    *_, others = matrices(replace(facts.interference(), pairs=(*facts.interference().pairs, odd)))
    assert (others.title, others.columns) == ("other pairs", ("launch 75 %",))
    assert others.rows[0].name == "stream 25 %"
    assert others.rows[0].alone == "unknown: not_recorded"  # it was not measured alone
    assert others.rows[0].squares[0].text == "10.0%"


def test_one_cap_beside_itself_is_a_matrix_of_its_kind(facts):
    (only,) = matrices(replace(facts.interference(), pairs=(facts.pair(1, ("50", "matmul"), ("50", "matmul"), 0.3),)))
    assert (only.title, only.columns, only.rows[0].name) == ("matmul beside matmul", ("50 %",), "50 %")


def test_no_pair_gives_no_matrix(facts):
    assert matrices(replace(facts.interference(), pairs=())) == ()


def test_a_victim_without_its_rate_alone_has_no_slowdown_and_says_why(facts):
    document = facts.interference()
    cell = replace(document.pairs[0], slowdown=None, slowdown_low=None, slowdown_high=None,
                   unknown={"slowdown": Reason.CLIENT_DIED})  # fmt: skip
    like, _ = matrices(replace(document, pairs=(cell, *document.pairs[1:])))
    assert like.rows[0].squares[0].text == "unknown: client_died"


@pytest.mark.parametrize(
    ("share", "shade"), [(-0.2, 0), (0.0, 0), (0.024, 0), (0.025, 1), (0.199, 2), (0.29, 3), (0.5, 5), (1.0, 5)]
)
def test_the_darker_the_more(facts, share, shade):
    document = replace(facts.interference(), pairs=(facts.pair(1, ("25", "matmul"), ("75", "matmul"), share),))
    assert matrices(document)[0].rows[0].squares[0].shade == shade


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (647.04, "TFLOPS", "647.0 TFLOPS"),
        (0.005701, "TFLOPS", "0.0057 TFLOPS"),
        (92_231.4, "launches/s", "92,231 launches/s"),
    ],
)
def test_a_small_rate_is_not_0(facts, value, unit, said):
    assert rate_in_words(facts.rate(value, unit)) == said
