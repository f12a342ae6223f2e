from __future__ import annotations

from pathlib import Path

import pytest

from mpswatch.mps import ReplyError
from mpswatch.mps.devices import Device, default_names, numbered, served

SAID = (Path(__file__).parents[1] / "recordings/h200-580/two-gpus/replies.txt").read_bytes()

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


def test_a_default_limit_may_be_set_for_a_uuid_or_an_ordinal_also_where_it_is_not_known_whose_that_is():
    assert default_names([Device(A, 0)]) == (A, "0")
    assert default_names([Device(A), Device(B)]) == (A, B, "0", "1")
    assert default_names([Device(A, 1)]) == (A, "1")


FIRST, SECOND = "GPU-d1aafaa0-5f95-64e3-8d9f-4d44b97b1f9c", "GPU-037fa9ab-1703-6f49-2b4e-e866ad20f55b"


@pytest.mark.parametrize(
    ("daemon", "ordinals"),
    [
        (b"both", {FIRST: 0, SECOND: 1}),
        (b"second", {SECOND: 0}),
        (b"indexed", {SECOND: 0}),
        (b"reversed", {SECOND: 0, FIRST: 1}),
        (b"reversed-by-index", {SECOND: 0, FIRST: 1}),
    ],
)
def test_a_daemon_tells_how_it_numbers_its_devices_as_recorded(daemon, ordinals):
    said = SAID.partition(b"=== " + daemon + b":")[2].partition(b"$ device_query\n")[2].partition(b"$ ")[0]
    found = numbered([Device(FIRST), Device(SECOND)], said)
    assert {device.uuid: device.ordinal for device in found} == ordinals


TABLE = b"Default\nDevice Ordinal  PCI IDs        UUID\n"


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b'Unknown command "device_query"\n',
        b"Default\n",
        TABLE + b"0  0000:00.06.00  " + A.encode(),
        TABLE + b"0  0000:00.06.00  GPU-aaaaaaaa\n",
        TABLE + b"first  0000:00.06.00  " + A.encode() + b"\n",
        TABLE + b"\xff\xfe\n",
        b"Server 593\n" + TABLE.partition(b"\n")[2],
    ],
)
def test_what_is_no_table_of_devices_is_named(said):
    with pytest.raises(ReplyError):
        numbered([Device(A)], said)
