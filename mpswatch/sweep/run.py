"""A whole sweep: cells one after another, or in interleaved rounds, and its document."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Unpack

from mpswatch.documents import Cell, PollSnapshot, Reason, SweepDocument
from mpswatch.sweep import assemble
from mpswatch.sweep import progress as steps
from mpswatch.sweep.assignment import Assignment
from mpswatch.sweep.bench import Bench
from mpswatch.sweep.cells import Outcome, measure, not_run
from mpswatch.sweep.messages import Result
from mpswatch.sweep.permit import Permit, Refusal
from mpswatch.sweep.plan import Thorough
from mpswatch.sweep.rounds import Rounds
from mpswatch.sweep.session import Session, Talked


def run_sweep(**assignment: Unpack[Assignment]) -> SweepDocument | Refusal:
    """Sweep one GPU under one control daemon.

    A `Refusal` when no cell was asked for: then no process of ours made a CUDA context. From the first cell on a
    `SweepDocument`, partial where something failed. The caller records what comes back. Returns within
    `plan.sweep_deadline` and the time to drain.
    """
    return _Sweep(**assignment).run()


@dataclass(kw_only=True)
class _Sweep(Session[SweepDocument]):
    cells: list[Cell] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    caps_run: list[str] = field(default_factory=list)  # a cap each client, in the order they ran
    seen_at_full: int | None = None

    def run_cells(self, bench: Bench, permit: Permit) -> Permit | Refusal:
        """Every cap gets its cell. The newest permit, or a `Refusal` when not even the first cell was asked for."""
        if self.plan.thorough is not None:
            return self.run_rounds(bench, permit, self.plan.thorough)
        over: Refusal | None = None
        for order, cap in enumerate(self.plan.caps, 1):
            if over is None:
                gate = self.gate(permit)
                if not isinstance(gate, Refusal):
                    outcome, over = self.run_cell(bench, *gate, order=order, cap=cap)
                    permit = outcome.permit
                    self.done(outcome.cell)
                    continue
                if order == 1:
                    return gate
                over = gate
                self.watch_refusal(gate)
            self.done(
                not_run(plan=self.plan, order=order, cap=cap, permit=permit, reason=over.reason, detail=over.detail)
            )
        return permit

    def run_rounds(self, bench: Bench, permit: Permit, settings: Thorough) -> Permit | Refusal:
        """Every cap several times, interleaved; then one cell a cap, of all its repeats."""
        rounds, began = Rounds(self.plan, settings), time.monotonic()
        over: Refusal | None = None
        while over is None and (caps := rounds.next(time.monotonic() - began)):
            for cap in caps:
                gate = self.gate(permit)
                if isinstance(gate, Refusal):
                    if not self.caps_run:
                        return gate
                    over = gate
                    self.watch_refusal(gate)
                    break
                outcome, over = self.run_cell(bench, *gate, order=len(self.caps_run) + 1, cap=cap)
                permit = outcome.permit
                rounds.take(cap, outcome)
                if over is not None:
                    break
        for order, cap in enumerate(self.plan.caps, 1):
            cell = rounds.cell(cap, over=None if over is None else f"{over.reason.value}: {over.detail}")
            why = over or Refusal(reason=Reason.NOT_RUN, detail="no repeat of it was begun")
            self.done(
                cell
                or not_run(plan=self.plan, order=order, cap=cap, permit=permit, reason=why.reason, detail=why.detail)
            )
        return permit

    def run_cell(
        self, bench: Bench, permit: Permit, snapshot: PollSnapshot, *, order: int, cap: str
    ) -> tuple[Outcome, Refusal | None]:
        """One cell, with the permit for the next, and why there must be none."""
        outcome = measure(bench, permit=permit, snapshot=snapshot, order=order, cap=cap, seen_at_full=self.seen_at_full)
        self.clients_run += 1
        self.caps_run.append(cap)
        if cap == "100":
            self.seen_at_full = outcome.cell.sm_count
        if outcome.result is not None:
            self.results.append(outcome.result)
        if outcome.left.stuck:
            self.report_stuck(
                outcome.left.stuck,
                simulated=outcome.permit.simulated,
                cap=outcome.cell.cap,
                failure=outcome.cell.failure,
            )
        if outcome.over is None:
            return outcome, None
        detail = f"not run, because the cell at {cap} % ended with {outcome.over.reason.value}"
        return outcome, self.over(outcome.over.reason, detail)

    def done(self, cell: Cell) -> None:
        self.cells.append(cell)
        self.ports.log(
            "cell done",
            run_id=self.run_id,
            cap=cell.cap,
            state=cell.state,
            tflops=cell.tflops,
            reason=cell.unknown_reason,
            detail=cell.failure,
        )
        self.watch(steps.CellDone(order=len(self.cells), of=len(self.plan.caps), cell=cell))

    # --- the document

    def write_down(self, snapshot: PollSnapshot, permit: Permit, talk: Talked) -> SweepDocument:
        seconds = time.monotonic() - self.started
        run = assemble.Run(
            run_id=self.run_id,
            trigger=self.trigger,
            host=self.host,
            pipe_directory=str(self.daemon.pipe_directory),
            gpu_uuid=self.gpu_uuid,
            client_runtime=self.ports.runtime.describe(),
            plan=self.plan,
            seed=self.seed,
            started_at=self.started_at,
            snapshot=snapshot,
            permit=permit,
            last_permit=talk.permit,
            ready=talk.ready,
            cells=self.cells,
            results=self.results,
            caps_run=tuple(self.caps_run),
            timings={**talk.timings, "sweep": seconds},
            stuck=self.stuck,
            after=self.ports.look_at_daemon(),
            finished_at=datetime.now(UTC),
        )
        measured = sum(cell.state != "unknown" for cell in self.cells)
        self.watch(steps.Finished(seconds=seconds, measured=measured, of=len(self.plan.caps)))
        return assemble.document(run)
