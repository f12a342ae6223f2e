"""What a real control daemon answered to whole looks, byte for byte (tests/gpu/replies.py), as the grammar reads it."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from mpswatch.mps import ReplyError
from mpswatch.mps.grammar import parse

RECORDED = json.loads((Path(__file__).parents[1] / "recordings/h200-580/replies.json").read_bytes())


def read(answer):
    servers = [int(line.split()[1]) for line in answer["script"].splitlines() if line.startswith("get_client_list")]
    return parse(answer["stdout"].encode(), servers=servers, with_contexts="ps\n" in answer["script"])


def clients(when):
    """The clients of each recorded look of that moment, with `ps` and without."""
    looks = [read(answer) for answer in RECORDED["replies"] if answer["when"] == when]
    return [[about.clients for about in look.about.values()] for look in looks]


def test_a_daemon_is_read_before_with_and_after_its_clients():
    assert clients("before the first client") == [[], []]
    assert clients("with one client") == [[(1270,)], [(1270,)]]
    assert clients("after the last client has left") == [[()], [()]]
    assert clients("with two clients") == [[(2691, 2696)], [(2691, 2696)]]


@pytest.mark.parametrize("place", ["without_neighbours", "beside_neighbours"])
def test_of_two_who_ask_at_once_the_daemon_drops_one_and_that_is_no_answer(place):
    dropped = RECORDED[place]["odd"]
    assert {(answer["stderr"], answer["returncode"]) for answer in dropped} == {
        ("Cannot send command to MPS control daemon process\n", 1)
    }
    for answer in dropped:
        with pytest.raises(ReplyError):
            read(answer)


def test_a_client_on_two_gpus_is_listed_once_and_has_one_row_of_ps():
    said = (Path(__file__).parents[1] / "recordings/h200-580/two-gpus/replies.txt").read_text()
    looks = [ast.literal_eval(line.partition(": ")[2])[0] for line in said.splitlines() if line.startswith("a whole")]
    found = parse(looks[2], servers=[593], with_contexts=True)
    assert found.about[593].clients == (733, 806, 810)
    assert [(context.pid, context.device[:12]) for context in found.contexts] == [
        (733, "GPU-d1aafaa0"), (806, "GPU-d1aafaa0"), (810, "GPU-037fa9ab"),
    ]  # fmt: skip
