"""Interference as matrices: victims down, aggressors across, beside what each victim does alone. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from mpswatch.documents import InterferenceCell, InterferenceDocument, Rate, Reason

Load = tuple[str, str]
"""What a client does: its cap in percent, and its kind of work."""

STEPS = (0.025, 0.1, 0.2, 0.35, 0.5)
"""What a loss is the darker for: it has the shade of the last of these that it reaches, and none below the first."""


class Square(NamedTuple):
    """One pair: the share of its rate alone that the victim loses (0.28: 28 %) with its interval, or why there is none.

    A pair that was never to be measured has neither.
    """

    share: float | None
    interval: tuple[float, float] | None = None
    reason: str | None = None

    @property
    def text(self) -> str:
        if self.share is None:
            return f"unknown: {self.reason}" if self.reason is not None else ""
        return f"{self.share:.1%}"

    @property
    def around(self) -> str:
        return "" if self.interval is None else f"{self.interval[0]:.1%} to {self.interval[1]:.1%}"

    @property
    def shade(self) -> int:
        """From 0 to 5."""
        return 0 if self.share is None else sum(self.share >= step for step in STEPS)


class Row(NamedTuple):
    """One victim: what it does, its rate beside the stack as it is, and beside each aggressor."""

    name: str
    alone: str
    squares: tuple[Square, ...]


class Matrix(NamedTuple):
    """Some pairs of one measurement: `columns` are the aggressors."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def matrices(document: InterferenceDocument) -> tuple[Matrix, ...]:
    """Arrange every pair: one matrix a kind of work (cap beside cap), one a cap (kind beside kind), then what is left.

    A pair of the same kind and the same cap stands in both, where both are drawn.
    """
    alone: dict[Load, InterferenceCell] = {(cell.victim_cap, cell.victim_kind): cell for cell in document.solo}
    groups = [*_by_kind(document.pairs, least=2), *_by_cap(document.pairs)]
    groups += _by_kind(_rest(document, groups), least=1)  # where only one cap was measured
    groups += [("other pairs", rest)] if (rest := _rest(document, groups)) else []
    return tuple(_matrix(title, cells, alone) for title, cells in groups)


def _rest(
    document: InterferenceDocument, groups: Iterable[tuple[str, list[InterferenceCell]]]
) -> list[InterferenceCell]:
    shown = {_pair(cell) for _, cells in groups for cell in cells}
    return [cell for cell in document.pairs if _pair(cell) not in shown]


def _by_kind(pairs: Iterable[InterferenceCell], *, least: int) -> Iterator[tuple[str, list[InterferenceCell]]]:
    alike = [cell for cell in pairs if cell.victim_kind == cell.aggressor_kind]
    for kind in dict.fromkeys(cell.victim_kind for cell in alike):
        cells = [cell for cell in alike if cell.victim_kind == kind]
        if len({cap for cell in cells for cap in (cell.victim_cap, cell.aggressor_cap)}) >= least:
            yield f"{kind} beside {kind}", cells


def _by_cap(pairs: Iterable[InterferenceCell]) -> Iterator[tuple[str, list[InterferenceCell]]]:
    alike = [cell for cell in pairs if cell.victim_cap == cell.aggressor_cap]
    for cap in dict.fromkeys(cell.victim_cap for cell in alike):
        cells = [cell for cell in alike if cell.victim_cap == cap]
        if len({kind for cell in cells for kind in (cell.victim_kind, cell.aggressor_kind)}) > 1:
            yield f"kinds of work, {cap} % beside {cap} %", cells


def _matrix(title: str, cells: Sequence[InterferenceCell], alone: dict[Load, InterferenceCell]) -> Matrix:
    pairs = {_pair(cell): cell for cell in cells}
    victims = list(dict.fromkeys(victim for victim, _ in pairs))
    aggressors = list(dict.fromkeys(aggressor for _, aggressor in pairs))
    name = _namer([*victims, *aggressors])
    rows = (
        Row(name(victim), _alone(alone.get(victim)), tuple(_square(pairs.get((victim, other))) for other in aggressors))
        for victim in victims
    )
    return Matrix(title, tuple(map(name, aggressors)), tuple(rows))


def _namer(loads: Sequence[Load]) -> Callable[[Load], str]:
    """Call each load by what tells it from the others."""
    kinds, caps = {kind for _, kind in loads}, {cap for cap, _ in loads}
    if len(kinds) == 1:
        return lambda load: f"{load[0]} %"
    return (lambda load: load[1]) if len(caps) == 1 else (lambda load: f"{load[1]} {load[0]} %")


def _square(cell: InterferenceCell | None) -> Square:
    if cell is None:
        return Square(None)
    if cell.slowdown is None:
        reason = cell.unknown_reason or cell.unknown.get("slowdown") or Reason.NOT_RECORDED
        return Square(None, None, str(reason))
    low, high = cell.slowdown_low, cell.slowdown_high
    return Square(cell.slowdown, (low, high) if low is not None and high is not None else None)


def _alone(cell: InterferenceCell | None) -> str:
    if cell is None or cell.victim is None:
        return f"unknown: {Reason.NOT_RECORDED if cell is None else cell.unknown_reason}"
    return rate_in_words(cell.victim)


def rate_in_words(rate: Rate) -> str:
    """Write a rate with its unit in three digits or more: a small one is never 0."""
    digits = ",.0f" if rate.value >= 1000 else ".1f" if rate.value >= 10 else ".3g"
    return f"{rate.value:{digits}} {rate.unit}"


def _pair(cell: InterferenceCell) -> tuple[Load, Load]:
    return (cell.victim_cap, cell.victim_kind), (cell.aggressor_cap or "", cell.aggressor_kind or "")
