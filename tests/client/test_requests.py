"""Whatever comes over the launcher's pipe is a request that was meant, or nonsense with a name."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpswatch.client import requests
from mpswatch.client.backend import Cell

GOOD = {"order": 1, "cap": "50", "size": 4096, "iters": 80, "dtype": "fp16", "seed": 5, "deadline": 30.0}

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def line(body: object) -> bytes:
    return json.dumps({"cell": body}).encode()


def test_what_the_daemon_sends_is_understood() -> None:
    word, cell = requests.read(line({**GOOD, "warm_up": 3, "samples": 20}))
    assert word == "cell"
    assert cell == Cell(1, "50", 4096, 80, "fp16", 5, 30.0, 3, 20, None)
    assert requests.read(b'{"go": true}') == ("go", None)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_nonsense(data: bytes) -> None:
    with contextlib.suppress(requests.Nonsense):
        word, cell = requests.read(data)
        assert word in requests.WORDS
        assert (cell is not None) == (word == "cell")


@given(st.sampled_from(sorted(GOOD)), anything)
def test_any_value_in_a_cell_is_taken_as_it_is_or_refused(name: str, value: object) -> None:
    with contextlib.suppress(requests.Nonsense):
        _, cell = requests.read(line({**GOOD, name: value}))
        assert getattr(cell, name) == value


@pytest.mark.parametrize(
    "cap", ["0", "-5", "101", "abc", "", "1e1", "nan", "5.", " 50", "٥٠", "100.1", "00000", 50, None]
)
def test_a_cap_that_mps_would_ignore_without_a_word_is_refused(cap: object) -> None:
    with pytest.raises(requests.Nonsense) as raised:
        requests.read(line({**GOOD, "cap": cap}))
    assert raised.value.reason == "cap_out_of_range"


@pytest.mark.parametrize("cap", ["100", "12.5", "1", "0.5"])
def test_a_cap_in_range_is_passed_on_as_it_was_written(cap: str) -> None:
    assert requests.read(line({**GOOD, "cap": cap}))[1].cap == cap
