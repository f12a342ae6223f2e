"""Which pairs an interference measurement runs, and what they come to: cells, and their document. Pure, but for the
moment at which the document is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from mpswatch import __version__
from mpswatch.documents import (
    SCHEMA_VERSION,
    InterferenceCell,
    InterferenceDocument,
    InterferenceProtocol,
    PollSnapshot,
    Rate,
    Reason,
    State,
    WorkKind,
)
from mpswatch.errors import MpswatchError
from mpswatch.evidence.median import Interval
from mpswatch.evidence.slowdown import slowdown
from mpswatch.sweep import assemble
from mpswatch.sweep.messages import Result
from mpswatch.sweep.pair import Load, Paired, Window, rate
from mpswatch.sweep.permit import Permit, Refusal
from mpswatch.sweep.plan import canonical_cap, canonical_caps
from mpswatch.sweep.session import Session, Talked

_WHAT = (
    "how much slower one capped MPS client works beside another one of ours than alone beside the stack as it is: for"
    " each pair of caps and kinds of work, under load"
)
_SLOWDOWN = (
    "1 - rate beside / rate alone, medians under load; alone is measured before and after the pairs of a victim, so"
    " that drift does not pose as a neighbour; each rate's interval holds its median with 97.5 %, so the slowdown's"
    " holds it with at least 95 %"
)
_KINDS = {
    "matmul": "square matmul of `size` (compute), TFLOPS",
    "stream": "reads 8 size^2 elements and writes as many (memory bandwidth), GB/s",
    "launch": "tiny kernels in a row (launch latency), launches/s",
}


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """What is measured beside what: matmul at each of `caps` beside matmul at each, and at `mixed_cap` each of
    `kinds` beside each."""

    caps: tuple[str, ...] = ("25", "50", "75", "100")
    kinds: tuple[WorkKind, ...] = ("matmul", "stream", "launch")
    mixed_cap: str = "50"
    window: Window = field(default_factory=lambda: Window(settle=0.3, length=0.5))

    def __post_init__(self) -> None:
        object.__setattr__(self, "caps", canonical_caps(self.caps))
        object.__setattr__(self, "mixed_cap", canonical_cap(self.mixed_cap))

    def groups(self) -> tuple[tuple[Load, tuple[Load, ...]], ...]:
        """Each victim with its aggressors, no pair twice."""
        like = [Load(cap=cap, kind="matmul") for cap in self.caps]
        mixed = [Load(cap=self.mixed_cap, kind=kind) for kind in self.kinds]
        groups = {victim: list(like) for victim in like}
        for victim in mixed:
            beside = groups.setdefault(victim, [])
            beside += [load for load in mixed if load not in beside]
        return tuple((victim, tuple(beside)) for victim, beside in groups.items())


@dataclass(kw_only=True)
class Group:
    """One victim's measurements, by their number: alone, and beside each aggressor."""

    victim: Load
    alone: list[tuple[int, Paired]] = field(default_factory=list)
    beside: dict[Load, tuple[int, Paired]] = field(default_factory=dict)

    def take(self, number: int, aggressor: Load | None, paired: Paired) -> None:
        if aggressor is None:
            self.alone.append((number, paired))
        else:
            self.beside[aggressor] = (number, paired)


def cells_of(
    group: Group, aggressors: Sequence[Load], why: Refusal, *, size: int, simulated: bool
) -> tuple[InterferenceCell, tuple[InterferenceCell, ...]]:
    """The victim alone, and beside each aggressor: each keeps its cell; `why` is for those that did not run."""
    state: State = "simulated" if simulated else "measured"
    alone = _alone(group, why, size=size, state=state)
    cells = []
    for aggressor in aggressors:
        number, paired = group.beside.get(aggressor, (0, None))
        value = _rate([paired], size) if paired is not None else None
        if paired is None or value is None:
            failure = paired.failure if paired is not None else None
            cells.append(_unknown(group.victim, aggressor, failure, why, order=number))
            continue
        cell = _measured(group.victim, aggressor, paired, value, state=state, order=number, size=size)
        cells.append(_with_slowdown(cell, value, alone))
    return alone, tuple(cells)


def _alone(group: Group, why: Refusal, *, size: int, state: State) -> InterferenceCell:
    good = [(number, paired) for number, paired in group.alone if paired.failure is None]
    value = _rate([paired for _, paired in good], size)
    if value is not None:
        number, paired = good[0]
        return _measured(group.victim, None, paired, value, state=state, order=number, size=size)
    number, failure = (group.alone[-1][0], group.alone[-1][1].failure) if group.alone else (0, None)
    return _unknown(group.victim, None, failure, why, order=number)


def _rate(paired: Sequence[Paired], size: int) -> Rate | None:
    results = [one.victim.result for one in paired if one.failure is None and one.victim.result is not None]
    return rate(results, size=size)


def _unknown(
    victim: Load, aggressor: Load | None, failure: MpswatchError | None, why: Refusal, *, order: int
) -> InterferenceCell:
    said = failure or why
    return InterferenceCell(
        order=order,
        victim_cap=victim.cap,
        victim_kind=victim.kind,
        aggressor_cap=aggressor.cap if aggressor else None,
        aggressor_kind=aggressor.kind if aggressor else None,
        state="unknown",
        unknown_reason=said.reason.value,
        failure=said.detail,
    )


def _measured(
    victim: Load, aggressor: Load | None, paired: Paired, value: Rate, *, state: State, order: int, size: int
) -> InterferenceCell:
    ours, other = paired.victim, paired.aggressor
    theirs: list[Result] = [other.result] if other is not None and other.result is not None else []
    pieces = [result.pieces for result in (ours.result, *theirs) if result is not None and result.pieces is not None]
    return InterferenceCell(
        order=order,
        victim_cap=victim.cap,
        victim_kind=victim.kind,
        aggressor_cap=aggressor.cap if aggressor else None,
        aggressor_kind=aggressor.kind if aggressor else None,
        state=state,
        measured_at=ours.measured_at,
        victim=value,
        aggressor=rate(theirs, size=size) if theirs else None,
        victim_pid=ours.member.pid if ours.member else None,
        aggressor_pid=other.member.pid if other is not None and other.member else None,
        victim_sm_count=ours.attached.sm_count if ours.attached else None,
        aggressor_sm_count=other.attached.sm_count if other is not None and other.attached else None,
        conditions_during=paired.conditions(),
        longest_unwatched=max((said.longest_unwatched for said in pieces), default=None),
    )


def _with_slowdown(cell: InterferenceCell, beside: Rate, alone: InterferenceCell) -> InterferenceCell:
    if alone.victim is None:
        unknown = {"slowdown": Reason(str(alone.unknown_reason))}
        return msgspec.structs.replace(cell, failure=f"alone is unknown: {alone.failure}", unknown=unknown)
    lost = slowdown(alone.victim.value, beside.value, _interval(alone.victim), _interval(beside))
    return msgspec.structs.replace(cell, slowdown=lost.value, slowdown_low=lost.low, slowdown_high=lost.high)


def _interval(of: Rate) -> Interval | None:
    if of.interval_low is None or of.interval_high is None:
        return None
    return Interval(low=of.interval_low, high=of.interval_high, coverage=of.confidence)


def interference_document(
    session: Session[InterferenceDocument],
    snapshot: PollSnapshot,
    permit: Permit,
    talk: Talked,
    *,
    matrix: Matrix,
    dtype: str,
    solo: Sequence[InterferenceCell],
    pairs: Sequence[InterferenceCell],
) -> InterferenceDocument:
    """The matrix's document, partial or complete."""
    cells = (*solo, *pairs)
    failed = [cell for cell in cells if cell.state == "unknown"]
    now = datetime.now(UTC)
    return InterferenceDocument(
        schema_version=SCHEMA_VERSION,
        what=_WHAT,
        host=session.host,
        run_id=session.run_id,
        recorded_at=now,
        started_at=session.started_at,
        finished_at=now,
        simulated=permit.simulated,
        pipe_directory=str(session.daemon.pipe_directory),
        gpu=permit.gpu.gpu,
        mps=assemble.mps_facts(talk.permit),
        protocol=InterferenceProtocol(
            size=session.plan.size,
            dtype=dtype,
            seed=session.seed,
            client_runtime=session.ports.runtime.describe(),
            backend="torch" if talk.ready.torch is not None else "numpy",
            settle_seconds=matrix.window.settle,
            window_seconds=matrix.window.length,
            kinds=_KINDS,
            slowdown=_SLOWDOWN,
        ),
        unmanaged_tenants=assemble.unmanaged(snapshot, session.gpu_uuid, simulated=permit.simulated),
        managed_clients_before=assemble.clients(permit.daemon, permit.simulated),
        solo=tuple(solo),
        pairs=tuple(pairs),
        complete=not failed,
        partial_run_note=_note(failed, of=len(cells)),
        trigger=session.trigger,
        mpswatch_version=__version__,
        launcher_timings=talk.timings,
        stuck_clients=session.stuck,
    )


def _note(failed: Sequence[InterferenceCell], *, of: int) -> str | None:
    if not failed:
        return None
    reasons = ", ".join(sorted({cell.unknown_reason or "" for cell in failed}))
    first = next((f" ({cell.failure})" for cell in failed if cell.failure), "")
    return f"{of - len(failed)} of {of} cells have a number; the others: {reasons}{first}"
