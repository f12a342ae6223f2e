from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from mpswatch.documents import DaemonLook, Reason, from_json
from mpswatch.evidence.limits import amount, given

RECORDED = Path(__file__).parents[1] / "recordings/h200-580/two-gpus/limits-check.txt"


def look_at(what):
    lines = RECORDED.read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(what))
    return from_json(lines[at + 1].encode(), DaemonLook)


def said(look):
    return [(one.clients_of, one.at_most) for one in given(look)]


@pytest.mark.parametrize("moment", ["no server", "new server, nothing set", "known server, nothing set"])
def test_where_nothing_is_set_there_is_no_word(moment):
    assert said(look_at(moment)) == []


def test_what_a_server_gives_and_what_servers_to_come_will_are_told_apart():
    assert said(look_at("a default for uuid and ordinal that differ")) == [
        ("server 1643", ("40 %", "2 GiB of GPU-e8d742f7")),
        ("servers to come", ("50 %", "900 MiB of GPU-e8d742f7")),
    ]


def test_a_limit_of_which_nobody_knows_the_gpu_is_said_and_one_that_was_not_asked_is_not():
    look = replace(look_at("no server"), default_memory_limits={})
    ambiguous = replace(look, unknown={"default_memory_limits": Reason.IDENTITY_AMBIGUOUS})
    assert said(ambiguous) == [("servers to come", ("memory unknown: identity_ambiguous",))]
    assert said(replace(look, unknown={"default_memory_limits": Reason.NOT_RECORDED})) == []


def test_an_amount_is_in_the_unit_that_it_is_whole_in():
    assert [amount(limit) for limit in (3 << 30, 900 << 20, 2500 << 20)] == ["3 GiB", "900 MiB", "2500 MiB"]
