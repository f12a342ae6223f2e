"""What the daemon records of a run's history, and what two runs are compared by."""

from __future__ import annotations

from mpswatch.documents import Figure, HistoryLook, Reason, ReferenceTenant, from_json, to_json
from mpswatch.history import Amount, compare, look_back


def test_a_run_is_held_against_earlier_runs_alone(archive, run, written, facts):
    written(*(run(hour) for hour in range(12)), *(run(hour, 100.0) for hour in range(20, 40)))
    look = look_back(archive, run(12), now=facts.NOON)
    (fifty,) = (cap for cap in look.caps if cap.cap == "50")
    assert (fifty.standing, fifty.runs, fifty.median) == ("usual", 12, 436.0)
    assert [past.run_id for past in look.previous] == [f"run-{hour:04}" for hour in range(12)]
    assert from_json(to_json(look), HistoryLook) == look


def test_it_makes_no_difference_whether_the_run_is_in_the_archive_already(archive, run, written, facts):
    written(*(run(hour) for hour in range(12)))
    before = look_back(archive, run(12), now=facts.NOON)
    written(run(12))
    assert look_back(archive, run(12), now=facts.NOON) == before


def test_the_first_run_of_all_has_no_history_and_says_so(archive, run, facts):
    look = look_back(archive, run(1), now=facts.NOON)
    assert {cap.unknown_reason for cap in look.caps} == {Reason.HISTORY_SHORT}


def test_two_runs_differ_in_what_they_differ_in(run, facts, protocol):
    tenant = ReferenceTenant(pid=7, used_memory_mb=700, process_name="train.py")
    one, two = run(1), run(2, 400.0, unmanaged_tenants=facts.known((tenant,)), gpu=facts.GPU)
    found = compare(one, two)
    assert found.not_comparable == ()
    assert [(one.what, one.first, one.second) for one in found.circumstances] == [
        ("foreign tenants", "none", "train.py 700 MiB")
    ]
    (fifty,) = (change for change in found.caps if change.cap == "50")
    assert round(fifty.ratio, 3) == round(400 / 436 - 1, 3)
    assert fifty.apart is None


def test_runs_of_two_gpus_stand_side_by_side_without_a_ratio(run):
    found = compare(run(1), run(1, gpu="GPU-99999999-0000"))
    assert [one.what for one in found.not_comparable] == ["GPU"]
    assert {change.ratio for change in found.caps} == {None}
    assert all(isinstance(change.first, Amount) for change in found.caps)


def test_a_cap_that_failed_or_is_missing_is_named(run, facts):
    found = compare(run(1, failed={"10": Reason.DEADLINE}), facts.sweep(cells=(facts.cell("50"),)))
    said = {change.cap: (change.first, change.second, change.ratio) for change in found.caps}
    assert said["10"] == ("unknown: deadline", "not in this run", None)
    assert said["25"][1:] == ("not in this run", None)


def test_intervals_that_exclude_each_other_are_said_to(facts):
    def document(burst):
        figure = Figure(
            tflops=burst, interval_low=burst - 2, interval_high=burst + 2, confidence=0.95, within_width=True,
            spread=0.01, between_repeats=0.01, count=20, repeats=3,
        )  # fmt: skip
        return facts.sweep(cells=(facts.cell("50", burst=figure),))

    apart = {change.quantity: change.apart for change in compare(document(440.0), document(430.0)).caps}
    assert apart == {"burst": True, "sustained": None}
    assert compare(document(440.0), document(439.0)).caps[0].apart is False
