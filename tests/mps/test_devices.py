from __future__ import annotations

import pytest

from mpswatch.mps.devices import Device, served

A, B = "GPU-aaaaaaaa-0000-4000-8000-000000000000", "GPU-bbbbbbbb-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("visible", "gpus", "devices"),
    [
        (None, [A], [Device(A, 0)]),
        (["3"], [A], [Device(A, 0)]),
        ([], [A], []),
        (None, [A, B], [Device(A), Device(B)]),
        (["1", "0"], [A, B], [Device(A), Device(B)]),
        ([B, A], [A, B], [Device(B, 0), Device(A, 1)]),
        (["GPU-bbbb"], [A, B], [Device(B, 0)]),
        (["GPU-"], [A, B], []),
        (["GPU-cccc", A], [A, B], [Device(A, 1)]),
        (None, [], []),
    ],
)
def test_a_daemons_devices_are_those_it_was_started_for_and_numbered_where_that_is_certain(visible, gpus, devices):
    assert served(visible, gpus) == tuple(devices)


def test_a_default_limit_may_be_set_for_a_uuid_or_an_ordinal():
    assert Device(A, 0).names == (A, "0")
    assert Device(A).names == (A,)
