"""One cell from its request to the last look at the daemon's list, and what it comes to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from mpswatch.documents import Cell, CellTimings, Pieces, PollSnapshot, Reason
from mpswatch.names import clip, printable
from mpswatch.sweep import sm
from mpswatch.sweep.attempt import Attempt, how_ended, status_of
from mpswatch.sweep.bench import Bench, CellError, Left, Seen
from mpswatch.sweep.leaving import leave
from mpswatch.sweep.messages import Attached, Result
from mpswatch.sweep.permit import Permit
from mpswatch.sweep.plan import Plan, tflops
from mpswatch.sweep.tenants_present import foreign_tenants

GOING_ON: Final = frozenset({Reason.IDENTITY_AMBIGUOUS, Reason.KERNEL_TOO_LONG, Reason.CLIENT_ERROR})
"""Failures that say something of one cell alone. After any other, no further cell of the sweep runs."""

# How a child ends that failed by itself and drained all the same; with any other status its device is broken.
_DRAINED: Final = frozenset({0, 1})


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a cell. `over` says why no further cell may run, None where one may.

    `permit` is the one for the next cell: with the server that this one created, where it did.
    `result` is None where the cell is unknown.
    """

    cell: Cell
    permit: Permit
    result: Result | None
    over: CellError | None
    left: Left
    seen: Seen

    @property
    def order(self) -> int:
        """Its place among all clients of the sweep."""
        return self.seen.order


def measure(
    bench: Bench, *, permit: Permit, snapshot: PollSnapshot, order: int, cap: str, seen_at_full: int | None
) -> Outcome:
    """Run the cell `cap`, number `order` (from 1), as `permit` allows; `snapshot` is what the permit was given on.

    `seen_at_full` is the SM count that the 100 % cell saw, None where it has not run.
    """
    seen, failure = Seen(order=order, cap=cap), None
    try:
        Attempt(bench, permit, seen).run()
    except CellError as error:
        failure = error
    left = leave(bench, seen)
    if left.stuck:
        pids = ", ".join(map(str, left.stuck))
        earlier = f" ({failure.reason.value}: {failure.detail})" if failure else ""
        failure = CellError(Reason.CLIENT_STUCK, f"process {pids} of the sweep did not leave in time{earlier}")
    if seen.member is not None and permit.server is None:
        permit = replace(permit, server=seen.member.server, own=True)
    return Outcome(
        cell=_cell(
            bench,
            seen,
            left,
            permit=permit,
            snapshot=snapshot,
            failure=failure,
            seen_at_full=seen_at_full,
        ),
        permit=permit,
        result=None if failure else seen.result,
        over=over_after(seen, failure),
        left=left,
        seen=seen,
    )


def over_after(seen: Seen, failure: CellError | None) -> CellError | None:
    """Why no further cell may run after this one, None where one may."""
    if failure is not None and failure.reason not in GOING_ON:
        return failure
    if seen.gone is None:
        return CellError(Reason.CLIENT_DIED, "the launcher did not say how its client left")
    if failure is not None and seen.gone.exit not in _DRAINED:
        return failure
    return None


def not_run(*, plan: Plan, order: int, cap: str, permit: Permit, reason: Reason, detail: str) -> Cell:
    """The cell of a cap that the sweep did not come to: every cap keeps its cell."""
    total = permit.gpu.gpu.sm_count
    unknown = {"managed_clients_after_cell": reason, "tenants_present": reason}
    if total is None:
        unknown["sm_count_expected"] = permit.gpu.gpu.unknown.get("sm_count", Reason.NOT_SUPPORTED)
    return Cell(
        cap=cap,
        iters=plan.iters,
        size=plan.size,
        seconds=None,
        tflops=None,
        client_reported_pid=None,
        client_pid_is_namespaced=None,
        mps_clients_joined_during_cell=None,
        self_was_managed=None,
        managed_clients_after_cell=None,
        state="unknown",
        unknown_reason=reason.value,
        failure=detail,
        order=order,
        sm_count_expected=None if total is None else sm.expectation(total, cap),
        unknown=unknown,
    )


def _cell(
    bench: Bench,
    seen: Seen,
    left: Left,
    *,
    permit: Permit,
    snapshot: PollSnapshot,
    failure: CellError | None,
    seen_at_full: int | None,
) -> Cell:
    plan, attached, member = bench.plan, seen.attached, seen.member
    result = None if failure else seen.result
    unknown: dict[str, Reason] = {}
    present = foreign_tenants(snapshot, bench.gpu_uuid)
    if isinstance(present, Reason):
        unknown["tenants_present"] = present
    gpu = permit.gpu.gpu
    expected = None if gpu.sm_count is None else sm.expectation(gpu.sm_count, seen.cap)
    if expected is None:
        unknown["sm_count_expected"] = gpu.unknown.get("sm_count", Reason.NOT_SUPPORTED)
    if left.reason is not None:
        unknown["managed_clients_after_cell"] = left.reason
    sm_count = attached.sm_count if attached else None
    return Cell(
        cap=seen.cap,
        iters=plan.iters,
        size=plan.size,
        seconds=result.seconds if result else None,
        tflops=tflops(size=plan.size, iters=plan.iters, seconds=result.seconds) if result else None,
        client_reported_pid=attached.pid if attached else None,
        client_pid_is_namespaced=member.namespaced if member else None,
        mps_clients_joined_during_cell=seen.joined,
        self_was_managed=_managed(seen, failure),
        managed_clients_after_cell=left.clients,
        state="unknown" if result is None else "simulated" if permit.simulated else "measured",
        unknown_reason=failure.reason.value if failure else None,
        failure=failure.detail if failure else _bad_leaving(bench, seen),
        order=seen.order,
        measured_at=seen.measured_at if result else None,
        clock=clip(printable(result.clock)) if result else None,
        client_pid=member.pid if member else None,
        server_pid=member.server.pid if member else permit.server_pid,
        sm_count=sm_count,
        sm_count_expected=expected,
        sm_count_as_expected=sm.as_expected(sm_count, expected, seen_at_full) if sm_count and expected else None,
        samples=result.samples if result else (),
        tenants_present=None if isinstance(present, Reason) else present,
        conditions_before=seen.before,
        conditions_after=seen.after,
        timings=_timings(seen, left),
        pieces=_pieces(result),
        environment=_environment(attached),
        unknown=unknown,
    )


def _managed(seen: Seen, failure: CellError | None) -> bool | None:
    """Whether the daemon's list had our client: None where the list could not say."""
    if failure is not None and failure.reason is Reason.NOT_MANAGED:
        return False
    return True if seen.member else None


def _bad_leaving(bench: Bench, seen: Seen) -> str | None:
    """A client that left in another way than agreed had drained by then: its number stands, with this beside it."""
    if seen.gone is not None and seen.gone.exit == 0:
        return None
    how = "it is not known how" if seen.gone is None else how_ended(status_of(seen.gone))
    words = bench.log.last()
    return clip(
        f"after its result the client left badly ({how})" + (f"; its last words: {words}" if words else ""), 600
    )


def _timings(seen: Seen, left: Left) -> CellTimings:
    said: dict[str, float] = {}
    for message in (seen.attached, seen.result):
        said |= message.timings if message else {}
    end = left.at
    return CellTimings(
        fork=said.get("fork"),
        context=said.get("context"),
        allocate=said.get("allocate"),
        warm_up=said.get("warm_up"),
        measure=said.get("measure"),
        busy=said.get("busy"),
        attached_to_gone=None if end is None or seen.attached_at is None else end - seen.attached_at,
        total=None if end is None else end - seen.started,
    )


def _pieces(result: Result | None) -> Pieces | None:
    if result is None or result.pieces is None:
        return None
    said = result.pieces
    return Pieces(
        count=said.count,
        in_flight_most=said.in_flight_most,
        longest_unwatched=said.longest_unwatched,
        gap_ratio=said.gap_ratio,
        host_bound=said.host_bound,
    )


def _environment(attached: Attached | None) -> dict[str, str] | None:
    if attached is None:
        return None
    told = sorted(attached.environment.items())[:64]
    return {clip(printable(name), 100): clip(printable(value)) for name, value in told}
