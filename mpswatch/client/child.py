"""One cell: attach, wait for `go`, measure, report, wait for `bye`, leave. It never returns and never leaves loaded.

Whatever happens, an exception, out of memory, end-of-file, the deadline, the way out is one: queue nothing more,
wait until the device has drained, say why where somebody listens, `os._exit` (mps-facts 1).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any, NamedTuple, NoReturn

from . import pieces
from .backend import Backend, Cell
from .faults import Fault, Striker
from .lifeline import Leave, Lifeline, Output, OutputGone, clip
from .signals import ignore_signals
from .sustained import Sustained

EXIT_DONE = 0
"""Measured, reported, drained."""

EXIT_FAILED = 1
"""Did not measure; drained."""

EXIT_NOT_DRAINED = 70
"""The device itself would not drain: synchronising raised, because it or its server is broken already."""

ENDLESS = 1 << 60
"""Iterations that nobody waits for: such a run ends when there is enough, at its deadline, or when told to leave."""

DRAIN_TRIES = 4
DRAIN_PAUSE = 0.5

ENVIRONMENT_SHOWN = ("CUDA_", "NVIDIA_", "OMP_", "OPENBLAS_", "MKL_", "CUBLAS", "PYTORCH_", "TORCH_", "LD_")


class Descriptors(NamedTuple):
    """All a child keeps, beside 0 (nothing), 1 and 2 (the log)."""

    lifeline: int
    output: int
    lock: int


def live(cell: Cell, backend: Backend, descriptors: Descriptors, forked_at: float, fault: Fault | None) -> NoReturn:
    """The child's whole life, from the fork on. `forked_at` is time.monotonic() just before it."""
    status = EXIT_NOT_DRAINED
    try:
        status = _live(cell, backend, descriptors, forked_at, fault)
    finally:
        os._exit(status)  # no interpreter shutdown, no atexit, no destructor that frees memory under a kernel


def _live(cell: Cell, backend: Backend, descriptors: Descriptors, forked_at: float, fault: Fault | None) -> int:
    child = Child(cell, backend, descriptors, forked_at, fault)
    failure: BaseException | None = None
    try:
        child.work_through()
    except BaseException as error:  # noqa: BLE001 -- MemoryError, SystemExit, KeyboardInterrupt: all leave the same way
        failure = error
    drained = child.device is None or _drained(child.device)
    if failure is not None:
        child.report(failure)
    if not drained:
        return EXIT_NOT_DRAINED
    if failure is None:
        return EXIT_DONE
    return EXIT_DONE if child.reported and isinstance(failure, Leave) else EXIT_FAILED


def _drained(device: pieces.Device) -> bool:
    """Wait until nothing is in flight. False where the device is broken and will not say so.

    Should the call itself fail for want of memory, time does the same: what is in flight is a fraction of a second.
    """
    for _ in range(DRAIN_TRIES):
        try:
            device.drain()
        except BaseException:  # noqa: BLE001 -- whatever it is, leaving early is the one thing that must not happen
            time.sleep(DRAIN_PAUSE)
        else:
            return True
    return False


class Child:
    """One cell under way."""

    def __init__(
        self, cell: Cell, backend: Backend, descriptors: Descriptors, forked_at: float, fault: Fault | None
    ) -> None:
        self.cell = cell
        self.backend = backend
        self.descriptors = descriptors
        self.output = Output(descriptors.output)
        self.lifeline = Lifeline(descriptors.lifeline, forked_at + cell.deadline)
        self.striker = Striker(fault, backend, self.output)
        self.device: pieces.Device | None = None
        self.phase = "fork"
        self.reported = False
        self.load: Sustained | None = None  # while it works under load
        self._mark = forked_at
        self._timings: dict[str, float] = {}

    def work_through(self) -> None:
        """All phases in order. Raises whatever ends the cell early, with nothing in flight."""
        close_all_but(self.descriptors)
        ignore_signals()
        self.lifeline.wait_for(b"start")
        os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = self.cell.cap
        self.striker.pass_point("fork")
        self._lap("fork")

        self._enter("context")
        facts = self.backend.attach(self.cell, self.descriptors.lock)
        self._lap("context")
        self.lifeline.look()  # the driver may have let us in late

        self._enter("allocate")
        self.device = self.backend.allocate(self.cell)
        self._lap("allocate")
        ignore_signals()  # should a library have set a handler of its own meanwhile
        self.lifeline.look()

        self._enter("attached")
        self.output.write("attached", self._attached(facts))
        self.lifeline.wait_for(b"go")
        self._enter("go")

        result = self._measure(self.device)
        self.device.drain()
        self._enter("result")
        self.output.write("result", result)
        self.reported = True
        self.lifeline.wait_for(b"bye")

    def report(self, failure: BaseException) -> None:
        """Say why, where that is still of use. Only called once nothing is in flight any more."""
        if self.reported or isinstance(failure, OutputGone):
            return
        body = self._place(phase=self.phase, reason=self._reason(failure), detail=clip(_detail(failure)))
        with contextlib.suppress(BaseException):  # nobody listens; `gone` from the launcher says enough
            self.output.write("failed", body)

    def _reason(self, failure: BaseException) -> str:
        if isinstance(failure, Leave):
            return failure.reason
        if isinstance(failure, pieces.KernelTooLong):
            return "kernel_too_long"
        if isinstance(failure, MemoryError):
            return "out_of_memory"
        return self.backend.reason_of(failure) or "client_error"

    def _measure(self, device: pieces.Device) -> dict[str, Any]:
        cell, exposure = self.cell, pieces.Exposure()
        work = pieces.Work(device, self._look, exposure)

        began = self._enter("fill")
        pieces.fill(work, cell.seed)
        self._enter("predict")
        kernel_seconds = pieces.predict(work, cell.size)
        self._enter("warm_up")
        if cell.warm_up:
            kernel_seconds = pieces.run(work, cell.warm_up, cell.size, kernel_seconds).kernel_seconds

        self._timings["warm_up"] = self._enter("measure") - began
        phases: dict[str, list[float]] = {}
        passes: list[pieces.Run] = []
        began = time.monotonic()
        for number in range(cell.passes):
            if number:
                self.lifeline.rest(cell.rest)
            passes.append(pieces.run(work, cell.iters, cell.size, kernel_seconds))
            kernel_seconds = passes[-1].kernel_seconds
        self._timings["measure"] = time.monotonic() - began
        if passes:
            phases["passes"] = [began, time.monotonic()]

        self._enter("samples")
        samples = pieces.run(work, cell.samples, cell.size, kernel_seconds, most=1).each
        sustained = None
        if cell.sustained is not None:
            self._enter("sustained")
            sustained, run = self._sustain(work, kernel_seconds, phases)
            passes = passes or [run]
        measured = passes[0]
        gap_ratio = measured.gap_seconds / measured.seconds if measured.seconds > 0 else 0.0
        return self._place(
            seconds=measured.seconds,
            samples=_short(samples),
            passes=_short([each.seconds for each in passes]) if cell.passes > 1 else [],
            sustained=sustained,
            phases={name: [round(moment, 6) for moment in span] for name, span in phases.items()},
            kind=cell.kind,
            bytes_each=self.backend.bytes_each(cell),
            clock=self.backend.clock,
            dtype=self.backend.dtype(cell),
            input_values=self.backend.input_values(cell),
            warm_up_iterations=cell.warm_up,
            timings=_rounded(dict(self._timings, busy=exposure.busy)),
            pieces={
                "count": measured.pieces,
                "in_flight_most": measured.in_flight_most,
                "longest_unwatched": round(exposure.longest_unwatched, 6),
                "gap_ratio": round(gap_ratio, 6),
                "host_bound": gap_ratio > pieces.HOST_BOUND_RATIO,
            },
        )

    def _sustain(
        self, work: pieces.Work, kernel_seconds: float, phases: dict[str, list[float]]
    ) -> tuple[dict[str, Any], pieces.Run]:
        """Work under load, as asked; `phases` are told (time.monotonic) when samples were taken."""
        cell = self.cell
        assert cell.sustained is not None  # noqa: S101 -- narrows the type: who calls has looked
        self.load = load = Sustained(cell.sustained)
        if cell.sustained.open_ended:
            self.output.write("running", self._place())  # nothing is in flight; from here on until `enough`
        began: list[float] = []

        def heed(count: int, seconds: float) -> bool:
            goes_on = load.heed(count, seconds)
            if load.settled is not None and not began:
                began.append(time.monotonic())
            return goes_on

        run = pieces.run(work, ENDLESS, cell.size, kernel_seconds, heed=heed)
        phases["sustained"] = [*(began or [time.monotonic()]), time.monotonic()]
        said = {
            "samples": _short(load.samples),
            "settled": load.settled is True,
            "settle_seconds": round(load.settle_seconds, 6),
            "seconds": round(load.seconds, 6),
            "iterations": load.iterations,
            "gap_ratio": round(run.gap_seconds / run.seconds if run.seconds > 0 else 0.0, 6),
        }
        return said, run

    def _look(self, in_flight: int) -> None:
        load = self.load
        if self.lifeline.look(b"enough" if load is not None and load.request.open_ended else None) and load is not None:
            load.enough = True
        self.striker.pass_point(self.phase, in_flight)

    def _attached(self, facts: dict[str, Any]) -> dict[str, Any]:
        shown = {name: clip(value, 160) for name, value in sorted(os.environ.items()) if _is_shown(name)}
        while len(repr(shown)) > 2000:
            shown.popitem()
        return self._place(pid=os.getpid(), timings=_rounded(self._timings), environment=shown, **facts)

    def _place(self, **body: object) -> dict[str, Any]:
        return dict({"order": self.cell.order, "cap": self.cell.cap}, **body)

    def _enter(self, phase: str) -> float:
        self.phase = phase
        self.striker.pass_point(phase)
        return time.monotonic()

    def _lap(self, name: str) -> None:
        now = time.monotonic()
        self._timings[name] = now - self._mark
        self._mark = now


def close_all_but(keep: Descriptors) -> None:
    """Close what the fork handed down: a child that kept a lifeline's write end would never see its end-of-file."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # the daemon's pipe: only the launcher reads it
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 -- names are numbers here
        if int(name) > 2 and int(name) not in keep:
            with contextlib.suppress(OSError):  # the descriptor that listdir itself used
                os.close(int(name))


def _short(times: list[float]) -> list[float]:
    return [round(seconds, 9) for seconds in times]


def _is_shown(name: str) -> bool:
    return name.startswith(ENVIRONMENT_SHOWN)


def _rounded(timings: dict[str, float]) -> dict[str, float]:
    return {name: round(seconds, 6) for name, seconds in timings.items()}


def _detail(failure: BaseException) -> str:
    """Type, message and the last places, for a reader of the document; the log is left to the libraries."""
    if isinstance(failure, Leave):
        return failure.detail
    where, trace = [], failure.__traceback__
    while trace is not None:
        where.append(f"{trace.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno}")
        trace = trace.tb_next
    return "{}: {} ({})".format(type(failure).__name__, failure, " > ".join(where[-3:]))
