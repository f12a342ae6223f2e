"""A cap that begins to stand otherwise than usual is said to once, and once more when that ends."""

from __future__ import annotations

import pytest

from mpswatch.documents import CapStanding, Event, HistoryLook, from_json, to_json
from mpswatch.history import lasting, look_back, turns
from mpswatch.journal import Journal


@pytest.fixture
def stood(facts):
    """Makes the look of a run in which each given (cap, quantity) stands so."""

    def look(standings, **changes):
        caps = tuple(
            CapStanding(
                cap=cap, quantity=quantity, standing=standing,
                unknown_reason="deadline" if standing == "unknown" else None,
                tflops=None if standing == "unknown" else 350.0, median=436.0, low=420.0, high=450.0, runs=40,
                explained_by=("foreign: train.py",) if standing == "explained" else (),
            )
            for (cap, quantity), standing in standings.items()
        )  # fmt: skip
        told = {
            "host": facts.HOST, "daemon": facts.DAEMON, "gpu_uuid": facts.GPU, "plan": "quick", "run_id": "r1",
            "judged_at": facts.NOON, "simulated": False, "caps": caps, "previous": (),
        }  # fmt: skip
        return HistoryLook(**(told | changes))

    return look


FIFTY = ("50", "tflops")


def said(events):
    return [(event.kind, event.details["standing"]) for event in events]


def test_it_begins_once_and_ends_once(stood):
    after, events = turns(stood({FIFTY: "below"}), {})
    assert said(events) == [("standing_began", "below")]
    assert events[0].message == "50 % burst, plan quick, is below its own history: 350 TFLOPS, usually 436"
    again, events = turns(stood({FIFTY: "below"}), after)
    assert (again, events) == (after, [])
    over, events = turns(stood({FIFTY: "usual"}), again)
    assert (over, said(events)) == ({}, [("standing_ended", "below")])
    assert turns(stood({FIFTY: "usual"}), over) == ({}, [])


def test_what_is_slower_once_begins_nothing_and_ends_what_lasted(stood):
    assert turns(stood({FIFTY: "slower_once"}), {}) == ({}, [])
    after, _ = turns(stood({FIFTY: "above"}), {})
    assert said(turns(stood({FIFTY: "slower_once"}), after)[1]) == [("standing_ended", "above")]


def test_one_standing_that_becomes_another_ends_and_begins(stood):
    after, _ = turns(stood({FIFTY: "explained"}), {})
    _, events = turns(stood({FIFTY: "below"}), after)
    assert said(events) == [("standing_ended", "explained"), ("standing_began", "below")]


def test_who_explains_it_is_said(stood):
    (event,) = turns(stood({FIFTY: "explained"}), {})[1]
    assert event.message.endswith("usually 436, foreign: train.py")
    assert event.details["explained_by"] == ["foreign: train.py"]


def test_a_cap_without_a_number_ends_nothing(stood):
    after, _ = turns(stood({FIFTY: "below"}), {})
    assert turns(stood({FIFTY: "unknown"}), after) == (after, [])


def test_burst_and_sustained_are_two_and_the_pass_that_the_burst_is_made_of_is_none(stood):
    slow = {("50", "tflops"): "below", ("50", "burst"): "below", ("50", "sustained"): "below"}
    _, events = turns(stood(slow, plan="thorough"), {})
    assert [event.details["quantity"] for event in events] == ["burst", "sustained"]
    assert [event.message.split(",")[0] for event in events] == ["50 % burst", "50 % sustained"]


def test_gpus_daemons_and_plans_are_apart(stood):
    after, _ = turns(stood({FIFTY: "below"}), {})
    for other in ({"gpu_uuid": "GPU-9"}, {"daemon": "other"}, {"plan": "thorough"}):
        assert said(turns(stood({FIFTY: "below"}, **other), after)[1]) == [("standing_began", "below")]


def test_after_a_restart_the_journal_says_what_lasts(stood, tmp_path):
    journal = Journal(tmp_path)
    after = {}
    for standing in ("below", "usual", "explained", "below"):
        after, events = turns(stood({FIFTY: standing, ("25", "tflops"): "above", ("10", "tflops"): "usual"}), after)
        for event in events:
            assert from_json(to_json(event), Event) == event
            journal.append(event)
    found = lasting(journal.of({"standing_began", "standing_ended"}), simulated=False)
    assert found == after
    assert {(subject.cap, standing) for subject, standing in found.items()} == {("50", "below"), ("25", "above")}
    assert lasting(journal.of({"standing_began", "standing_ended"}), simulated=True) == {}


def test_lines_of_other_kinds_that_speak_of_it_are_none_of_it(stood, facts, tmp_path):
    journal = Journal(tmp_path)
    journal.append(facts.event("tenant_appeared", details={"process_name": "standing_began"}))
    assert list(journal.of({"standing_began"})) == []


def test_a_run_that_is_below_its_history_says_so(archive, run, written, facts):
    written(*(run(hour) for hour in range(12)), run(12, 300.0))
    look = look_back(archive, run(13, 300.0), now=facts.NOON)
    _, events = turns(look, {})
    assert [(event.kind, event.details["cap"], event.run_id) for event in events] == [
        ("standing_began", "50", "run-0013")
    ]
