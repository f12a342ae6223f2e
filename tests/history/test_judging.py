"""A cap is held against its own history and its own company; how often that errs is counted on simulated series."""

from __future__ import annotations

import math
import random
from datetime import timedelta

import pytest

from mpswatch.documents import Reason
from mpswatch.history import judge
from mpswatch.history.facts import CapFacts, RunFacts, Series
from mpswatch.history.judging import SHORTEST

SERIES = Series("h", "mps", "GPU-1", "quick", "matmul", "fp16", 4096, 80, "torch", "process", simulated=False)


def runs(values, facts, *, foreign=(), managed=2):
    """One run a value (None: unknown); `foreign` and `managed` may be one for all or a list."""
    made = []
    for place, value in enumerate(values):
        names = foreign[place] if isinstance(foreign, list) else foreign
        clients = managed[place] if isinstance(managed, list) else managed
        at = facts.NOON + timedelta(hours=place)
        cap = CapFacts("50", value, None if value is not None else "deadline", foreign=names)
        made.append(
            RunFacts(
                run_id=str(place), series=SERIES, started=at, finished=at, complete=True, note=None, managed=clients,
                caps=(cap,),
            )
        )  # fmt: skip
    return made


def standing(values, facts, **more):
    return judge(runs(values, facts, **more), "50").standing


STEADY = [440.0, 441.0, 439.5, 440.5, 438.8, 440.2, 439.9, 441.1, 440.4, 439.2] * 3


def test_a_steady_cap_is_as_usual(facts):
    found = judge(runs(STEADY, facts), "50")
    assert found.standing == "usual"
    assert found.low < 439 < found.median < 441 < found.high
    assert found.runs == len(STEADY) - 1


def test_one_slow_run_is_said_and_two_in_a_row_are_below(facts):
    assert standing([*STEADY, 380.0], facts) == "slower_once"
    assert standing([*STEADY, 380.0, 381.0], facts) == "below"
    assert standing([*STEADY, 380.0, 440.0], facts) == "usual"
    assert standing([*STEADY, 500.0, 501.0], facts) == "above"


def test_a_change_of_less_than_three_percent_is_none(facts):
    assert standing([*[440.0] * 30, 428.0, 428.0], facts) == "usual"
    assert standing([*[440.0] * 30, 426.0, 426.0], facts) == "below"


def test_a_lasting_change_becomes_the_usual_after_half_a_window(facts):
    values = [*STEADY, *[380.0] * 19]
    assert standing(values, facts) == "below"
    assert standing([*values, *[380.0] * 22], facts) == "usual"


def test_a_short_history_says_so(facts):
    found = judge(runs([440.0] * SHORTEST, facts), "50")
    assert (found.standing, found.unknown_reason, found.runs) == ("unknown", Reason.HISTORY_SHORT, SHORTEST - 1)
    assert found.tflops == 440.0
    assert standing([440.0] * (SHORTEST + 1), facts) == "usual"


def test_a_run_without_a_number_is_unknown_and_in_nobodys_history(facts):
    found = judge(runs([*STEADY, None], facts), "50")
    assert (found.standing, found.unknown_reason) == ("unknown", "deadline")
    assert standing([*STEADY, None, None, 440.0], facts) == "usual"
    assert judge(runs(STEADY, facts), "99").standing == "unknown"


def test_a_slower_run_beside_somebody_new_is_explained(facts):
    company = [()] * len(STEADY) + [("train.py",)]
    found = judge(runs([*STEADY, 380.0], facts, foreign=company), "50")
    assert found.standing == "explained"
    assert found.explained_by == ("foreign: train.py",)
    assert standing([*STEADY, 380.0], facts, managed=[2] * len(STEADY) + [3]) == "explained"


def test_who_left_explains_no_slower_run(facts):
    company = [("train.py",)] * len(STEADY) + [(), ()]
    assert standing([*STEADY, 380.0, 380.0], facts, foreign=company) == "below"


def test_a_known_neighbour_is_no_excuse_for_more_than_it_ever_cost(facts):
    """With enough runs in the same company, those are the history."""
    alone, beside = STEADY, [value * 0.95 for value in STEADY[:12]]
    company = [()] * len(alone) + [("train.py",)] * 12
    assert standing([*alone, *beside, 418.0], facts, foreign=[*company, ("train.py",)]) == "usual"
    worse = [*company, ("train.py",), ("train.py",)]
    assert standing([*alone, *beside, 340.0, 341.0], facts, foreign=worse) == "below"


def test_unknown_tenants_excuse_nothing(facts):
    company = [()] * len(STEADY) + [None, None]
    assert standing([*STEADY, 380.0, 381.0], facts, foreign=company) == "below"


def noise(chance, kind, spread, count):
    drift = 0.0
    for place in range(count):
        match kind:
            case "normal":
                yield chance.gauss(1, spread)
            case "heavy tails":  # Student's t with three degrees of freedom
                yield 1 + spread * chance.gauss(0, 1) / math.sqrt(chance.gammavariate(1.5, 2) / 3)
            case "drifting":  # first-order autoregressive, 0.8
                drift = 0.8 * drift + chance.gauss(0, spread * 0.6)
                yield 1 + drift
            case "daily":
                yield chance.gauss(1 + 0.02 * math.sin(place * math.tau / 24), spread)


def alarms(values, facts):
    made = runs(values, facts)
    return sum(
        judge(made[max(0, place - 60) : place + 1], "50").standing == "below" for place in range(SHORTEST, len(made))
    )


@pytest.mark.parametrize(
    ("kind", "spread", "most"),
    [("normal", 0.003, 0), ("normal", 0.01, 0), ("normal", 0.03, 1), ("heavy tails", 0.005, 1),
     ("heavy tails", 0.02, 3), ("drifting", 0.01, 0), ("daily", 0.005, 0)],
)  # fmt: skip
def test_quiet_series_raise_next_to_no_alarm(kind, spread, most, facts):
    """At most `most` alarms in 1500 runs, two months of hourly sweeps; an idle H200's spread is 0.001 to 0.005."""
    chance = random.Random(f"{kind} {spread}")
    assert alarms([440 * value for value in noise(chance, kind, spread, 1500)], facts) <= most


@pytest.mark.parametrize(("spread", "drop"), [(0.005, 0.05), (0.01, 0.10), (0.03, 0.30)])
def test_a_real_drop_is_found_within_two_runs(spread, drop, facts):
    chance = random.Random(f"{spread} {drop}")
    found = 0
    for _ in range(100):
        values = [440 * value for value in noise(chance, "normal", spread, 42)]
        values[40:] = [value * (1 - drop) for value in values[40:]]
        found += standing(values, facts) == "below"
    assert found >= 97
