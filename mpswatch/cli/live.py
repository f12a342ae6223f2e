"""A sweep as it happens, on stderr: a line a step, or one moving line on a terminal."""

from __future__ import annotations

import sys

from mpswatch.documents import InterferenceCell
from mpswatch.sweep.progress import (
    CellAttached,
    CellDone,
    CellMeasuring,
    CellStarted,
    Finished,
    Importing,
    PairDone,
    PairStarted,
    Progress,
    Ready,
    Refused,
)


class Live:
    """Shows each step of a sweep. Called from the sweep's thread; never raises for a terminal that is gone."""

    def __init__(self) -> None:
        self._moving = sys.stderr.isatty()

    def __call__(self, step: Progress) -> None:
        text, stays = _said(step)
        if not self._moving:
            if stays:
                self._write(f"{text}\n")
        else:
            self._write(f"\r\x1b[K{text}" + ("\n" if stays else ""))

    def _write(self, text: str) -> None:
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except OSError:
            return


def _said(step: Progress) -> tuple[str, bool]:
    """What to say, and whether it stays when the next step comes."""
    said: tuple[str, bool]
    match step:
        case Importing():
            said = f"starting the measuring client: {step.client_runtime}", True
        case Ready():
            said = f"the client is ready after {step.seconds:.1f} s", True
        case CellStarted():
            said = f"  {step.order}/{step.of}  {step.cap:>4} %  waits for its context", False
        case CellAttached():
            return (
                f"  {step.order}/{step.of}  {step.cap:>4} %  sees {step.sm_count} SMs, waits to be found listed",
                False,
            )
        case CellMeasuring():
            said = f"  {step.order}/{step.of}  {step.cap:>4} %  measures (client {step.client_pid})", False
        case CellDone():
            said = f"  {step.order}/{step.of}  {step.cell.cap:>4} %  {_result(step)}", True
        case PairStarted():
            beside = f" beside {step.beside}" if step.beside is not None else " alone"
            said = f"  {step.order}/{step.of}  {step.victim}{beside}", False
        case PairDone():
            said = _pair(step.cell), True
        case Finished():
            said = f"{step.measured} of {step.of} {step.what} measured in {step.seconds:.1f} s", True
        case Refused():
            said = "", False
    return said


def _pair(cell: InterferenceCell) -> str:
    beside = "alone" if cell.aggressor_cap is None else f"beside {cell.aggressor_kind} at {cell.aggressor_cap} %"
    what = f"  {cell.victim_kind} at {cell.victim_cap} % {beside}: "
    if cell.victim is None:
        return f"{what}unknown: {cell.unknown_reason}" + (f" ({cell.failure})" if cell.failure else "")
    lost = f", {cell.slowdown:.1%} slower" if cell.slowdown is not None else ""
    return f"{what}{cell.victim.value:.4g} {cell.victim.unit}{lost}"


def _result(step: CellDone) -> str:
    cell = step.cell
    if cell.tflops is None:
        return f"unknown: {cell.unknown_reason}" + (f" ({cell.failure})" if cell.failure else "")
    return f"{cell.tflops:.4g} TFLOPS on {cell.sm_count} SMs"
