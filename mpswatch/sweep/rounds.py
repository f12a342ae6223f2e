"""Which caps a thorough sweep measures next: all of them, there and back, then those that are not sure enough. Pure."""

from __future__ import annotations

from mpswatch.documents import Cell
from mpswatch.sweep.cells import Outcome
from mpswatch.sweep.figures import cell_of, widths
from mpswatch.sweep.plan import Plan, Thorough


class Rounds:
    """The outcomes so far, by cap."""

    def __init__(self, plan: Plan, settings: Thorough) -> None:
        self._plan = plan
        self._settings = settings
        self._outcomes: dict[str, list[Outcome]] = {cap: [] for cap in plan.caps}
        self._begun = 0

    def take(self, cap: str, outcome: Outcome) -> None:
        self._outcomes[cap].append(outcome)

    def next(self, elapsed: float) -> tuple[str, ...]:
        """The caps of the next round, in the order to run them; none where there is enough.

        Every other round runs backwards, so that a drift over the sweep weighs on every cap alike (ABBA).
        `elapsed` is seconds since the first cell: beyond the budget only the rounds that must be are begun.
        """
        settings = self._settings
        if self._begun >= settings.rounds_most:
            return ()
        caps = self._plan.caps
        if self._begun >= settings.rounds_least:
            if elapsed >= settings.budget:
                return ()
            caps = tuple(cap for cap in caps if self._unsure(cap))
        self._begun += 1
        return caps if self._begun % 2 else caps[::-1]

    def cell(self, cap: str, *, over: str | None) -> Cell | None:
        """The cap's cell, None where no repeat of it was begun. `over` says why the sweep ended early, if it did."""
        outcomes = self._outcomes[cap]
        if not outcomes:
            return None
        short = over if len(outcomes) < self._settings.rounds_least else None
        return cell_of(self._plan, order=self._plan.caps.index(cap) + 1, outcomes=outcomes, over=short)

    def _unsure(self, cap: str) -> bool:
        return any(width > self._settings.interval_width for width in widths(self._plan, self._outcomes[cap]))
