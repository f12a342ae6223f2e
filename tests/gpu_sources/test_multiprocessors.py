from __future__ import annotations

import pytest

from mpswatch.gpu import sm_total


def test_an_h200_has_132():
    assert sm_total(16896, (9, 0)) == 132


@pytest.mark.parametrize(
    ("cores", "capability", "total"), [(6912, (8, 0), 108), (5120, (7, 0), 80), (6144, (12, 1), 48)]
)
def test_other_parts_as_their_data_sheets_say(cores, capability, total):
    assert sm_total(cores, capability) == total


@pytest.mark.parametrize(("cores", "capability"), [(16896, (99, 0)), (16897, (9, 0)), (0, (9, 0)), (-128, (9, 0))])
def test_what_does_not_divide_or_is_not_known_is_unknown(cores, capability):
    assert sm_total(cores, capability) is None
