"""Whether each cap of a sweep is enforced: from SM counts, membership and the order of the curve. Pure.

The SM count that a client sees is the only cheap proof that a cap took hold (a cap that MPS does not understand is
ignored without a word, and the client runs on the whole device). Throughput can contradict it, never replace it:
outside MPS a client runs as fast as under a cap of 100 %.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpswatch.documents import CapEnforcement, CapVerdict, Cell

OUT_OF_ORDER = 0.02
"""A smaller cap's throughput may be this much above a larger one's before the curve contradicts the SM counts: more
than any run to run variation seen (1.5 %, docs/method.md)."""


def verdicts(cells: Sequence[Cell]) -> tuple[CapVerdict, ...]:
    """One verdict a cell, in the cells' order, which does not matter otherwise."""
    return tuple(_verdict(cell, cells) for cell in cells)


def doubts(cells: Sequence[Cell]) -> Iterator[tuple[CapEnforcement, str]]:
    """A line for each cap that is not known to be enforced: its verdict, and the line with what speaks against it."""
    for cell in cells:
        verdict = cell.verdict
        if verdict is not None and verdict.verdict != "enforced":
            against = verdict.evidence[1:] or verdict.evidence  # the first of several says that the client was managed
            yield verdict.verdict, f"{cell.cap} % {verdict.verdict.replace('_', ' ')}: {'; '.join(against)}"


def _verdict(cell: Cell, cells: Sequence[Cell]) -> CapVerdict:
    seen, expected = cell.sm_count, cell.sm_count_expected
    if cell.state == "unknown" or cell.self_was_managed is not True:
        reason = cell.unknown_reason or "membership is not known"
        return _is("unknown", f"not measured as a managed client: {reason}")
    managed = "the client was in the control daemon's own list"
    if seen is None or expected is None:
        missing = "how many SMs the client saw" if seen is None else "how many SMs the device has"
        return _is("unknown", managed, f"{missing} is not known")
    implied = f"the client saw {seen} of {expected.total} SMs; {cell.cap} % implies at most {expected.at_most:g}"
    if seen > expected.at_most:
        return _is("not_enforced", managed, implied)
    if seen <= expected.above:
        return _is(
            "unknown",
            managed,
            implied,
            f"that is less than this cap implies (more than {expected.above:g}): a lower limit acts, not this cap",
        )
    against = _out_of_order(cell, cells)
    if against is not None:
        return _is("unknown", managed, implied, against)
    return _is("enforced", managed, implied, *_in_order(cell, cells))


def _is(verdict: CapEnforcement, *evidence: str) -> CapVerdict:
    return CapVerdict(verdict=verdict, evidence=evidence)


def _larger(cell: Cell, cells: Sequence[Cell]) -> list[Cell]:
    """Measured cells of larger caps whose clients saw more SMs, smallest cap first."""
    found = [
        other
        for other in cells
        if float(other.cap) > float(cell.cap)
        and other.tflops is not None
        and other.sm_count is not None
        and cell.sm_count is not None
        and other.sm_count > cell.sm_count
    ]
    return sorted(found, key=lambda other: float(other.cap))


def _out_of_order(cell: Cell, cells: Sequence[Cell]) -> str | None:
    for other in _larger(cell, cells):
        if cell.tflops is not None and other.tflops is not None and cell.tflops > other.tflops * (1 + OUT_OF_ORDER):
            return (
                f"its {cell.tflops:.4g} TFLOPS are more than the {other.tflops:.4g} of {other.cap} %, which saw"
                f" {other.sm_count} SMs: the curve contradicts the SM counts"
            )
    return None


def _in_order(cell: Cell, cells: Sequence[Cell]) -> list[str]:
    larger = _larger(cell, cells)
    if not larger or cell.tflops is None or larger[0].tflops is None:
        return []
    return [f"throughput follows: {cell.tflops:.4g} TFLOPS, {larger[0].tflops:.4g} at {larger[0].cap} %"]
