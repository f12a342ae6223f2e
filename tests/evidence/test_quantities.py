"""What a cell measured: a quick run one quantity, a thorough one always two, each with its own clock and power."""

from __future__ import annotations

from msgspec.structs import replace

from mpswatch.evidence.quantities import quantities_of, readings


def test_a_quick_run_has_a_burst_of_one_pass_and_the_conditions_after_it(facts):
    cell = facts.cell("50", conditions_after=facts.conditions(sm_clock_mhz=1980, power_watts=163.0))
    document = facts.sweep(cells=(cell,))
    (reading,) = readings(cell, quantities_of(document))
    assert (reading.words, reading.tflops, reading.low) == ("burst", 436.0, None)
    assert (reading.sm_clock_mhz, reading.power_watts, reading.after) == (1980, 163.0, True)


def test_a_thorough_run_has_two_by_name(facts):
    document = facts.thorough()
    assert quantities_of(document) == ("burst", "sustained")
    burst, sustained = readings(document.cells[0], quantities_of(document))
    assert (burst.words, burst.tflops, burst.sm_clock_mhz, burst.power_watts) == ("burst", 742.0, 1980.0, 390.0)
    assert (sustained.words, sustained.tflops, sustained.sm_clock_mhz) == ("sustained", 647.0, 1485.0)
    assert not burst.after


def test_a_thorough_run_without_a_single_figure_still_shows_that_two_are_missing(facts):
    document = facts.thorough(failed=dict.fromkeys(facts.CURVE, "deadline"))
    assert quantities_of(document) == ("burst", "sustained")
    assert {reading.reason for cell in document.cells for reading in readings(cell, ("burst", "sustained"))} == {
        "deadline"
    }


def test_a_figure_that_is_missing_alone_is_unknown_and_not_the_other_one(facts):
    document = facts.thorough()
    cell = replace(document.cells[0], sustained=None)
    burst, sustained = readings(cell, quantities_of(document))
    assert burst.tflops == 742.0
    assert (sustained.tflops, sustained.reason) == (None, "not_recorded")
