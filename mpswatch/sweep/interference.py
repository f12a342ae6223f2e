"""What pairs of our own capped clients cost each other: a second plan of the sweep, two children under one lock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Unpack

from mpswatch.documents import InterferenceCell, InterferenceDocument, PollSnapshot, Reason
from mpswatch.sweep import progress as steps
from mpswatch.sweep.assignment import Assignment
from mpswatch.sweep.bench import Bench
from mpswatch.sweep.matrix import Group, Matrix, cells_of, interference_document
from mpswatch.sweep.pair import Load, Paired, run_pair
from mpswatch.sweep.permit import Permit, Refusal
from mpswatch.sweep.plan import item_bytes
from mpswatch.sweep.session import Session, Talked

LOOK = 0.1
"""Seconds between looks at the GPU's conditions while a victim is measured."""

_STREAM_BUFFERS, _MATMUL_BUFFERS = 16, 3
"""In size^2 elements: a stream takes two buffers of eight times that, a matmul three matrices."""


def run_interference(*, matrix: Matrix, **assignment: Unpack[Assignment]) -> InterferenceDocument | Refusal:
    """Measure one GPU under one control daemon, as `run_sweep` does: a refusal when nothing was asked for.

    `plan` gives size, dtype and deadlines.
    """
    return _Interference(matrix=matrix, **assignment).run()


@dataclass(kw_only=True)
class _Interference(Session[InterferenceDocument]):
    matrix: Matrix
    solo: list[InterferenceCell] = field(default_factory=list)
    pairs: list[InterferenceCell] = field(default_factory=list)
    dtype: str | None = None

    what: ClassVar[str] = "interference"

    def __post_init__(self) -> None:
        super().__post_init__()
        # a pair takes two places of the server, so one more must be free
        self.limits = replace(self.limits, headroom=self.limits.headroom + 1)

    @property
    def plan_name(self) -> str:
        return "interference"

    @property
    def caps(self) -> tuple[str, ...]:
        return self.matrix.caps

    @property
    def need_bytes(self) -> int:
        """Two clients, each with a context and the larger of the two kinds of buffers."""
        more = _STREAM_BUFFERS - _MATMUL_BUFFERS if "stream" in self.matrix.kinds else 0
        return 2 * (self.plan.memory_bytes + more * self.plan.size**2 * item_bytes(self.plan.dtype))

    def run_cells(self, bench: Bench, permit: Permit) -> Permit | Refusal:
        bench = replace(bench, look=LOOK)
        groups = self.matrix.groups()
        of, number = sum(len(beside) + 2 for _, beside in groups), 0
        over: Refusal | None = None
        for victim, aggressors in groups:
            group = Group(victim=victim)
            # alone before and after its pairs: a drift would else pose as what the neighbours cost
            for aggressor in (None, *aggressors, None):
                number += 1
                if over is not None:
                    continue
                gate = self.gate(permit)
                if isinstance(gate, Refusal):
                    if not self.clients_run:
                        return gate
                    over = gate
                    self.watch_refusal(gate)
                    continue
                neighbour = None if aggressor is None else _said(aggressor)
                self.watch(steps.PairStarted(order=number, of=of, victim=_said(victim), beside=neighbour))
                paired = self.run_one(bench, gate[0], victim, aggressor)
                permit = paired.permit
                group.take(number, aggressor, paired)
                if paired.over is not None:
                    detail = f"not run, because a client ended with {paired.over.reason.value}: {paired.over.detail}"
                    over = self.over(paired.over.reason, detail)
            why = over or Refusal(reason=Reason.NOT_RUN, detail="not run")
            solo, pairs = cells_of(group, aggressors, why, size=self.plan.size, simulated=permit.simulated)
            self.keep(self.solo, solo)
            for cell in pairs:
                self.keep(self.pairs, cell)
        return permit

    def run_one(self, bench: Bench, permit: Permit, victim: Load, aggressor: Load | None) -> Paired:
        paired = run_pair(
            bench,
            permit=permit,
            order=self.clients_run + 1,
            victim=victim,
            aggressor=aggressor,
            window=self.matrix.window,
        )
        self.clients_run += 1 if aggressor is None else 2
        if paired.stuck:
            failure = paired.failure.detail if paired.failure else None
            self.report_stuck(paired.stuck, simulated=permit.simulated, cap=victim.cap, failure=failure)
        if paired.victim.result is not None:
            self.dtype = paired.victim.result.dtype
        return paired

    def keep(self, cells: list[InterferenceCell], cell: InterferenceCell) -> None:
        cells.append(cell)
        self.ports.log(
            "interference cell done",
            run_id=self.run_id,
            victim=f"{cell.victim_kind} at {cell.victim_cap} %",
            aggressor=None if cell.aggressor_cap is None else f"{cell.aggressor_kind} at {cell.aggressor_cap} %",
            slowdown=cell.slowdown,
            reason=cell.unknown_reason,
            detail=cell.failure,
        )
        self.watch(steps.PairDone(cell=cell))

    def write_down(self, snapshot: PollSnapshot, permit: Permit, talk: Talked) -> InterferenceDocument:
        document = interference_document(
            self,
            snapshot,
            permit,
            talk,
            matrix=self.matrix,
            dtype=self.dtype or self.plan.dtype,
            solo=self.solo,
            pairs=self.pairs,
        )
        cells = (*document.solo, *document.pairs)
        measured = sum(cell.state != "unknown" for cell in cells)
        seconds = (document.finished_at - document.started_at).total_seconds()
        self.watch(steps.Finished(seconds=seconds, measured=measured, of=len(cells), what="cells"))
        return document


def _said(load: Load) -> str:
    return f"{load.kind} at {load.cap} %"
