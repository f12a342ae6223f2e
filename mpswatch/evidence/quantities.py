"""What a cell measured, quantity by quantity: burst and sustained are two, and a view shows each by its name. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mpswatch.documents import Cell, Figure, Quantity, Reason, SweepDocument

WORDS: dict[Quantity, str] = {"tflops": "burst", "burst": "burst", "sustained": "sustained"}
"""What people call each: the reference's `tflops` is one pass after a rest, and that is a burst figure."""


class Reading(NamedTuple):
    """One quantity of one cell: TFLOPS with the ends of its interval, or the reason why there is none.

    `sm_clock_mhz` and `power_watts` are medians of the looks while it was measured; where `after` says so (plan quick,
    whose one pass is shorter than the pause between two looks) they are those of the look after it. None: unknown.
    """

    quantity: Quantity
    tflops: float | None
    reason: str | None = None
    low: float | None = None
    high: float | None = None
    sm_clock_mhz: float | None = None
    power_watts: float | None = None
    after: bool = False
    settled: bool | None = None

    @property
    def words(self) -> str:
        return WORDS[self.quantity]


def quantities_of(document: SweepDocument) -> tuple[Quantity, ...]:
    """Name what a run measured of each cell: a plan that measures two quantities never shows one alone."""
    both = document.protocol.plan == "thorough" or any(cell.burst or cell.sustained for cell in document.cells)
    return ("burst", "sustained") if both else ("tflops",)


def readings(cell: Cell, quantities: Sequence[Quantity]) -> tuple[Reading, ...]:
    """Give each of `quantities` of one cell, in their order."""
    return tuple(_reading(cell, quantity) for quantity in quantities)


def _reading(cell: Cell, quantity: Quantity) -> Reading:
    if quantity == "tflops":
        after = cell.conditions_after
        return Reading(
            quantity,
            cell.tflops,
            cell.unknown_reason,
            sm_clock_mhz=after.sm_clock_mhz if after is not None else None,
            power_watts=after.power_watts if after is not None else None,
            after=True,
        )
    figure = cell.burst if quantity == "burst" else cell.sustained
    if figure is None:
        return Reading(quantity, None, cell.unknown_reason or Reason.NOT_RECORDED)
    return _of(figure, quantity)


def _of(figure: Figure, quantity: Quantity) -> Reading:
    during = figure.conditions_during
    return Reading(
        quantity,
        figure.tflops,
        low=figure.interval_low,
        high=figure.interval_high,
        sm_clock_mhz=during.sm_clock_mhz if during is not None else None,
        power_watts=during.power_watts if during is not None else None,
        settled=figure.settled,
    )
