"""One cell: a child attaches, is found in the daemon's list, is told to go, measures, is asked to leave, is seen gone.

Nothing here can end a child, and nothing would: one that ends with work in flight takes its neighbours along
(mps-facts 1). Whatever goes wrong, the child is asked to leave or its lifeline closes; one that does not leave is
stuck, is reported, and is left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, TypeVar

from mpswatch.documents import Cell, CellTimings, Conditions, Pieces, PollSnapshot, Reason
from mpswatch.errors import MpswatchError
from mpswatch.names import clip, printable
from mpswatch.proc import ProcessGone
from mpswatch.sweep import progress, sm
from mpswatch.sweep.conversation import Babble, Conversation, Ended, Heard, Late, Stopped
from mpswatch.sweep.log import LauncherLog
from mpswatch.sweep.membership import Member, clients_of, find, pauses, still
from mpswatch.sweep.messages import Attached, Failed, Forked, Gone, Result
from mpswatch.sweep.permit import Limits, Permit
from mpswatch.sweep.plan import Plan, tflops
from mpswatch.sweep.ports import Ports
from mpswatch.sweep.tenants_present import foreign_tenants

GOING_ON: Final = frozenset({Reason.IDENTITY_AMBIGUOUS, Reason.KERNEL_TOO_LONG, Reason.CLIENT_ERROR})
"""Failures that say something of one cell alone. After any other, no further cell of the sweep runs."""

CLIENT_REASONS: Final = frozenset(
    {
        Reason.CAP_OUT_OF_RANGE,
        Reason.CLIENT_DIED,
        Reason.CLIENT_ERROR,
        Reason.CLIENT_IMPORT_FAILED,
        Reason.CLIENT_NONSENSE,
        Reason.CUDA_UNAVAILABLE,
        Reason.DEADLINE,
        Reason.KERNEL_TOO_LONG,
        Reason.NOT_MANAGED,
        Reason.NOT_SUPPORTED,
        Reason.OUT_OF_MEMORY,
        Reason.PERMISSION,
        Reason.SERVER_FAULT,
        Reason.SERVER_FULL,
        Reason.STOPPED,
        Reason.SWEEP_RUNNING,
    }
)
"""What the client may say about itself; any other word of its is `client_error`."""

# The child's own deadline comes first, so that it is the one to say why.
_SLACK = 1.0

M = TypeVar("M", Forked, Attached, Result)


class CellError(MpswatchError):
    """The cell is over without a number."""


def said_reason(failed: Failed) -> Reason:
    """The reason in a `failed` message, as far as a client may give it."""
    try:
        reason = Reason(failed.reason)
    except ValueError:
        return Reason.CLIENT_ERROR
    return reason if reason in CLIENT_REASONS else Reason.CLIENT_ERROR


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What all cells of a sweep share. `sweep_end` is a time.monotonic."""

    plan: Plan
    seed: int
    limits: Limits
    gpu_uuid: str
    ports: Ports
    conversation: Conversation
    log: LauncherLog
    sweep_end: float
    watch: Callable[[progress.Progress], None]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a cell. `over` says why no further cell may run, None where one may.

    `permit` is the one for the next cell: with the server that this one created, where it did.
    `stuck` are pids of children that did not leave, and `someone_stuck` holds also where their pid is not known.
    """

    cell: Cell
    permit: Permit
    result: Result | None
    over: CellError | None
    stuck: tuple[int, ...] = ()
    someone_stuck: bool = False


def measure(
    bench: Bench, *, permit: Permit, snapshot: PollSnapshot, order: int, cap: str, seen_at_full: int | None
) -> Outcome:
    """Run the cell `cap`, number `order` (from 1), as `permit` allows; `snapshot` is what the permit was given on.

    `seen_at_full` is the SM count that the 100 % cell saw, None where it has not run.
    """
    attempt = _Attempt(bench, permit, order, cap)
    failure: CellError | None = None
    try:
        attempt.run()
    except CellError as error:
        failure = error
    attempt.leave()
    return attempt.outcome(failure, snapshot, seen_at_full)


class _Attempt:
    """One child from its cell to its leaving, and what came to be known on the way."""

    def __init__(self, bench: Bench, permit: Permit, order: int, cap: str) -> None:
        self.bench = bench
        self.permit = permit
        self.order = order
        self.cap = cap
        self.started = time.monotonic()
        self.until = min(self.started + bench.plan.cell_deadline + _SLACK, bench.sweep_end)
        self.forked: Forked | None = None
        self.attached: Attached | None = None
        self.attached_at: float | None = None
        self.member: Member | None = None
        self.joined: tuple[int, ...] | None = None
        self.result: Result | None = None
        self.measured_at: datetime | None = None
        self.before: Conditions | None = None
        self.after: Conditions | None = None
        self.failed_itself = False
        self.gone: Gone | None = None
        self.left_at: float | None = None
        self.clients_after: tuple[int, ...] | None = None
        self.clients_after_reason = Reason.NOT_RUN
        self.stuck: tuple[int, ...] = ()
        self.someone_stuck = False

    # --- the way to a number

    def run(self) -> None:
        bench, plan = self.bench, self.bench.plan
        bench.log.rewind()
        self._progress(progress.CellStarted(order=self.order, of=len(plan.caps), cap=self.cap))
        self._say(
            {
                "cell": {
                    "order": self.order,
                    "cap": self.cap,
                    "size": plan.size,
                    "iters": plan.iters,
                    "dtype": plan.dtype,
                    "seed": bench.seed,
                    "deadline": plan.cell_deadline,
                    "warm_up": plan.warm_up,
                    "samples": plan.samples,
                }
            }
        )
        self.forked = self._expect(Forked)
        self.attached = attached = self._expect(Attached)
        self.attached_at = time.monotonic()
        self._progress(
            progress.CellAttached(order=self.order, of=len(plan.caps), cap=self.cap, sm_count=attached.sm_count)
        )
        if attached.device_uuid is not None and not _same_device(attached.device_uuid, bench.gpu_uuid):
            raise CellError(
                Reason.CLIENT_NONSENSE,
                f"the client is on device {clip(printable(attached.device_uuid))}, not {bench.gpu_uuid}",
            )
        self.member = self._prove(attached)
        self.joined = self.member.joined
        self.before = bench.ports.conditions(bench.gpu_uuid)
        self._progress(
            progress.CellMeasuring(order=self.order, of=len(plan.caps), cap=self.cap, client_pid=self.member.pid)
        )
        told = time.monotonic()
        self._say({"go": True})
        result = self._expect(Result)
        wall = time.monotonic() - told
        self.measured_at = datetime.now(UTC)
        self.after = bench.ports.conditions(bench.gpu_uuid)
        if result.seconds > wall * 1.01 + 0.001:
            raise CellError(
                Reason.CLIENT_NONSENSE,
                f"the client says {result.seconds} s, and {wall:.6f} s passed since it was told to go",
            )
        doubt = still(bench.ports.look_at_daemon(), self.member, bench.ports.processes)
        if doubt is not None:
            raise CellError(doubt.reason, doubt.detail)
        self.result = result

    def _prove(self, attached: Attached) -> Member:
        """Look at the list until our client is on it; no go without that."""
        ports, runtime = self.bench.ports, self.bench.ports.runtime
        launched = self.bench.conversation.launched
        until = min(time.monotonic() + self.bench.plan.join_deadline, self.until)
        pause = pauses()
        while True:
            found = find(
                ports.look_at_daemon(),
                before=self.permit.clients,
                server_pid=self.permit.server_pid,
                start_ticks=self.permit.start_ticks,
                reported_pid=attached.pid,
                processes=ports.processes,
                is_ours=lambda facts: runtime.is_ours(launched, facts),
            )
            if isinstance(found, Member):
                break
            self.joined = found.joined
            now = time.monotonic()
            if found.final or now >= until:
                raise CellError(found.reason, found.detail)
            heard = self.bench.conversation.hear(until=min(now + pause(), until))
            if not isinstance(heard, Late):
                raise self._unexpected(heard, "nothing before it was told to go")
        server = found.server
        if self.permit.server is None and not server.multi_user and server.uid != self.bench.limits.client_uid:
            raise CellError(Reason.UID_MISMATCH, f"the new server {server.pid} serves uid {server.uid}")
        return found

    def _say(self, message: dict[str, object]) -> None:
        if not self.bench.conversation.say(message):
            # What it said before it went is the better reason.
            raise self._unexpected(self.bench.conversation.hear(until=time.monotonic()), "it to read")

    def _expect(self, kind: type[M]) -> M:
        heard = self.bench.conversation.hear(until=self.until)
        if isinstance(heard, kind) and (heard.order, heard.cap) == (self.order, self.cap):
            return heard
        raise self._unexpected(heard, kind.__name__.lower())

    def _unexpected(self, heard: Heard, expected: str) -> CellError:
        """Whatever is not what should come now, as the reason why the cell is over."""
        match heard:
            case Stopped():
                return CellError(Reason.STOPPED, "the sweep was asked to end")
            case Late():
                whose = "the sweep's" if self.until >= self.bench.sweep_end else "the cell's"
                return CellError(Reason.DEADLINE, f"{whose} deadline passed while waiting for {expected}")
            case Ended(status=status):
                return CellError(Reason.CLIENT_DIED, self._with_last_words(f"the launcher ended ({_how(status)})"))
            case Babble(detail=detail):
                return CellError(Reason.CLIENT_NONSENSE, detail)
            case Failed(order=None | self.order):
                self.failed_itself = True
                text = f"{heard.phase}: {heard.detail or heard.reason}"
                return CellError(said_reason(heard), self._with_last_words(text))
            case Gone(order=self.order, cap=self.cap):
                self._heard_gone(heard)
                text = f"the client ended ({_how(_status(heard))}) before it said {expected}"
                return CellError(Reason.CLIENT_DIED, self._with_last_words(text))
        return CellError(
            Reason.CLIENT_NONSENSE,
            f"the client said {type(heard).__name__.lower()} of cell {getattr(heard, 'order', None)},"
            f" and {expected} of cell {self.order} was expected",
        )

    def _with_last_words(self, text: str) -> str:
        words = self.bench.log.last()
        return clip(printable(text) + (f"; its last words: {words}" if words else ""), 600)

    # --- the way out

    def leave(self) -> None:
        """Let the child leave, see it gone, and read the list once more. Bounded, so the wish to stop is not heeded."""
        deadline = time.monotonic() + self.bench.plan.drain_deadline
        if not self.gone:
            if not self.failed_itself and not self.bench.conversation.say({"bye": True}):
                self.bench.conversation.launched.hang_up()
            self._await_gone(deadline)
        if not self.gone:
            # The launcher is gone, out of step or silent: closing its lifeline closes the child's.
            self.bench.conversation.launched.hang_up()
            self._await_gone(deadline)
            self._await_end(deadline)
        self._await_off_the_list()

    def _await_gone(self, deadline: float) -> None:
        while not self.gone:
            heard = self.bench.conversation.hear(until=deadline, heed_stop=False)
            if isinstance(heard, Gone) and heard.order == self.order:
                self._heard_gone(heard)
            elif isinstance(heard, Late | Ended | Babble | Stopped):
                return

    def _await_end(self, deadline: float) -> None:
        """Without the launcher's word for it: watch the child's process itself, as far as we know which it is."""
        if self.gone:
            return
        pause = pauses()
        while (pid := self._child()) is not None:
            if time.monotonic() >= deadline:
                self.stuck, self.someone_stuck = (pid,), True
                return
            time.sleep(min(pause(), 0.05))
        # A launcher that still lives has not seen its child leave, though we cannot say which process that is.
        self.someone_stuck = self.bench.conversation.launched.exited() is None and self._launcher_waits(deadline)

    def _launcher_waits(self, deadline: float) -> bool:
        pause = pauses()
        while self.bench.conversation.launched.exited() is None:
            if time.monotonic() >= deadline:
                return True
            time.sleep(min(pause(), 0.05))
        return False

    def _child(self) -> int | None:
        """The child's pid here, while it lives and is ours."""
        processes, runtime = self.bench.ports.processes, self.bench.ports.runtime
        pid = self.member.pid if self.member else self.forked.pid if self.forked else None
        if pid is None:
            return None
        try:
            facts = processes.facts(pid)
        except ProcessGone:
            return None
        if self.member and facts.start_ticks != self.member.start_ticks:
            return None
        return pid if runtime.is_ours(self.bench.conversation.launched, facts) and facts.state not in "ZX" else None

    def _heard_gone(self, gone: Gone) -> None:
        self.gone = gone
        self.left_at = time.monotonic()

    def _await_off_the_list(self) -> None:
        """The daemon's list after the cell: once our client is off it, or as it stands when that takes too long."""
        pid = self.member.pid if self.member else self.forked.pid if self.forked else None
        until = time.monotonic() + self.bench.plan.join_deadline
        pause = pauses()
        while True:
            look = self.bench.ports.look_at_daemon()
            self.clients_after = clients_of(look)
            if self.clients_after is None:
                self.clients_after_reason = look.up_reason or Reason.DAEMON_SILENT
                return
            if pid not in self.clients_after:
                if self.left_at is not None:
                    self.left_at = time.monotonic()
                return
            if time.monotonic() >= until or self.someone_stuck:
                return
            time.sleep(pause())

    # --- what it comes to

    def outcome(self, failure: CellError | None, snapshot: PollSnapshot, seen_at_full: int | None) -> Outcome:
        permit = self.permit
        if self.member and permit.server is None:
            permit = replace(permit, server=self.member.server, own=True)
        if self.someone_stuck:
            pids = ", ".join(map(str, self.stuck)) or "of unknown pid"
            earlier = f" ({failure.reason.value}: {failure.detail})" if failure else ""
            failure = CellError(Reason.CLIENT_STUCK, f"the client {pids} did not leave in time{earlier}")
        cell = self._cell(failure, snapshot, seen_at_full)
        over = failure if failure is not None and (failure.reason not in GOING_ON or not self.gone) else None
        return Outcome(
            cell=cell,
            permit=permit,
            result=self.result,
            over=over,
            stuck=self.stuck,
            someone_stuck=self.someone_stuck,
        )

    def _cell(self, failure: CellError | None, snapshot: PollSnapshot, seen_at_full: int | None) -> Cell:
        plan, attached, member = self.bench.plan, self.attached, self.member
        result = self.result if failure is None else None
        unknown: dict[str, Reason] = {}
        present = foreign_tenants(snapshot, self.bench.gpu_uuid)
        if isinstance(present, Reason):
            unknown["tenants_present"] = present
        gpu = self.permit.gpu.gpu
        expected = None if gpu.sm_count is None else sm.expectation(gpu.sm_count, self.cap)
        if expected is None:
            unknown["sm_count_expected"] = gpu.unknown.get("sm_count", Reason.NOT_SUPPORTED)
        if self.clients_after is None:
            unknown["managed_clients_after_cell"] = self.clients_after_reason
        seen = attached.sm_count if attached else None
        return Cell(
            cap=self.cap,
            iters=plan.iters,
            size=plan.size,
            seconds=result.seconds if result else None,
            tflops=tflops(size=plan.size, iters=plan.iters, seconds=result.seconds) if result else None,
            client_reported_pid=attached.pid if attached else None,
            client_pid_is_namespaced=member.namespaced if member else None,
            mps_clients_joined_during_cell=self.joined,
            self_was_managed=self._managed(failure),
            managed_clients_after_cell=self.clients_after,
            state="unknown" if result is None else "simulated" if self.permit.simulated else "measured",
            unknown_reason=failure.reason.value if failure else None,
            failure=failure.detail if failure else self._bad_leaving(),
            order=self.order,
            measured_at=self.measured_at if result else None,
            clock=result.clock if result else None,
            client_pid=member.pid if member else None,
            server_pid=member.server.pid if member else self.permit.server_pid,
            sm_count=seen,
            sm_count_expected=expected,
            sm_count_as_expected=sm.as_expected(seen, expected, seen_at_full) if seen and expected else None,
            samples=result.samples if result else (),
            tenants_present=None if isinstance(present, Reason) else present,
            conditions_before=self.before,
            conditions_after=self.after,
            timings=self._timings(),
            pieces=_pieces(result),
            environment=_environment(attached),
            unknown=unknown,
        )

    def _managed(self, failure: CellError | None) -> bool | None:
        if failure is not None and failure.reason is Reason.NOT_MANAGED:
            return False
        return True if self.member else None

    def _bad_leaving(self) -> str | None:
        """A client that ended in another way than agreed had drained by then: its number stands, this beside it."""
        if self.gone is not None and self.gone.exit == 0:
            return None
        return self._with_last_words(
            "how the client left is not known"
            if self.gone is None
            else f"the client left badly ({_how(_status(self.gone))})"
        )

    def _timings(self) -> CellTimings:
        said = {**(self.attached.timings if self.attached else {}), **(self.result.timings if self.result else {})}
        end = self.left_at
        return CellTimings(
            fork=said.get("fork"),
            context=said.get("context"),
            allocate=said.get("allocate"),
            warm_up=said.get("warm_up"),
            measure=said.get("measure"),
            busy=said.get("busy"),
            attached_to_gone=end - self.attached_at if end is not None and self.attached_at is not None else None,
            total=end - self.started if end is not None else None,
        )

    def _progress(self, step: progress.Progress) -> None:
        self.bench.watch(step)


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


def _same_device(one: str, other: str) -> bool:
    return one.lower().removeprefix("gpu-") == other.lower().removeprefix("gpu-")


def _status(gone: Gone) -> int | None:
    return -gone.signal if gone.signal is not None else gone.exit


def _how(status: int | None) -> str:
    if status is None:
        return "still there, with its output closed"
    return f"signal {-status}" if status < 0 else f"exit status {status}"
