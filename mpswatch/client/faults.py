"""Faults on purpose, so that the tests can show that no way out leaves work in flight. For tests alone.

Nothing here acts unless the launcher's command line says so:

    --fail-in PHASE:KIND[:N]   in every cell: strike the N-th time (default 1) that PHASE passes its point
    --fail-in cell             strike where a cell's own key `fail_in` says so, in the same notation

In the phases that compute (fill to sustained) the point is a look at the lifeline *with work in flight*; in the others
it is where the phase begins.
"""

from __future__ import annotations

import os
import signal
import time
from typing import NamedTuple

from .backend import Backend
from .lifeline import Output

COMPUTING = ("fill", "predict", "warm_up", "measure", "samples", "sustained")
PHASES = ("fork", "context", "allocate", "attached", "go", *COMPUTING, "result")

KINDS = {
    "exception": "raises RuntimeError",
    "memory": "raises MemoryError",
    "out_of_memory": "asks the device for more memory than there is",
    "exit": "raises SystemExit",
    "interrupt": "raises KeyboardInterrupt",
    "late": "sleeps for one second and goes on",
    "hang": "sleeps for ever, as a driver that does not come back",
    "nonsense": "writes a line that is no JSON and goes on",
    "long_line": "writes a line of 5000 bytes and goes on",
    "os_exit": "os._exit at once: unsafe with work in flight, which is what it is there to show",
    "die": "SIGKILL to itself: unsafe with work in flight, likewise",
}


class FaultOnPurpose(RuntimeError):  # noqa: N818 -- it is none
    """What KIND `exception` raises."""


RAISED = {
    "exception": FaultOnPurpose("a fault on purpose"),
    "memory": MemoryError(),
    "exit": SystemExit(3),
    "interrupt": KeyboardInterrupt(),
}


class Fault(NamedTuple):
    phase: str
    kind: str
    after: int


def parse(text: str) -> Fault:
    """`PHASE:KIND[:N]`. Raises ValueError with what is wrong."""
    phase, _, rest = text.partition(":")
    kind, _, after = rest.partition(":")
    if phase not in PHASES:
        raise ValueError("phase {!r} is none of {}".format(phase, ", ".join(PHASES)))
    if kind not in KINDS:
        raise ValueError("kind {!r} is none of {}".format(kind, ", ".join(KINDS)))
    if after and (not after.isdecimal() or int(after) < 1):
        raise ValueError(f"{after!r} is not a number of times")
    return Fault(phase, kind, int(after or 1))


class Striker:
    """Counts the times that the phase passes its point, and strikes once."""

    def __init__(self, fault: Fault | None, backend: Backend, output: Output) -> None:
        self._fault = fault
        self._left = fault.after if fault is not None else 0
        self._backend = backend
        self._output = output

    def pass_point(self, phase: str, in_flight: int = 0) -> None:
        fault = self._fault
        if fault is None or fault.phase != phase or (phase in COMPUTING and in_flight == 0):
            return
        self._left -= 1
        if self._left == 0:
            self._strike(fault.kind)

    def _strike(self, kind: str) -> None:
        if kind in RAISED:
            raise RAISED[kind]
        if kind == "out_of_memory":
            self._backend.exhaust()
        elif kind == "late":
            time.sleep(1.0)
        elif kind == "hang":
            while True:
                time.sleep(3600)
        elif kind == "nonsense":
            self._output.write_raw(b"Traceback (most recent call last):\n")
        elif kind == "long_line":
            self._output.write_raw(b"x" * 5000 + b"\n")
        elif kind == "os_exit":
            os._exit(5)
        elif kind == "die":
            signal.raise_signal(signal.SIGKILL)
