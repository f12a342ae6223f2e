"""A whole sweep: preflight, launcher, cells one after another, document. Synchronous; runs in a thread of its own."""

from __future__ import annotations

import random
import secrets
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from mpswatch.documents import Cell, Event, EventKind, PollSnapshot, Reason, SweepDocument
from mpswatch.errors import MpswatchError
from mpswatch.process.launch import Launched
from mpswatch.sweep import assemble
from mpswatch.sweep import progress as steps
from mpswatch.sweep.bench import Bench
from mpswatch.sweep.cells import Outcome, measure, not_run
from mpswatch.sweep.circumstances import available_memory, lock_holders
from mpswatch.sweep.conversation import Conversation
from mpswatch.sweep.launching import await_ready, doubt_ready, left_behind, let_go
from mpswatch.sweep.log import LauncherLog
from mpswatch.sweep.messages import Ready, Result
from mpswatch.sweep.permit import Circumstances, Limits, Permit, Refusal
from mpswatch.sweep.plan import Plan, Thorough
from mpswatch.sweep.ports import Address, Ports, Watcher, unwatched
from mpswatch.sweep.preflight import decide
from mpswatch.sweep.rounds import Rounds
from mpswatch.sweep.stop import Stop


def run_sweep(
    *,
    plan: Plan,
    daemon: Address,
    gpu_uuid: str,
    host: str,
    limits: Limits,
    ports: Ports,
    stop: Stop,
    trigger: str,
    progress: Watcher = unwatched,
) -> SweepDocument | Refusal:
    """Sweep one GPU under one control daemon.

    A `Refusal` when no cell was asked for: then no process of ours made a CUDA context. From the first cell on a
    `SweepDocument`, partial where something failed. The caller records what comes back. Returns within
    `plan.sweep_deadline` and the time to drain; `stop` ends it sooner, and nothing else may.
    """
    sweep = _Sweep(plan, daemon, gpu_uuid, host, limits, ports, stop, trigger, progress)
    outcome = sweep.run()
    if isinstance(outcome, Refusal):
        sweep.refused(outcome)
    return outcome


@dataclass(frozen=True, kw_only=True)
class _Talk:
    """What came of talking with the launcher, beside the cells."""

    ready: Ready
    permit: Permit
    timings: dict[str, float]


@dataclass
class _Sweep:
    plan: Plan
    daemon: Address
    gpu_uuid: str
    host: str
    limits: Limits
    ports: Ports
    stop: Stop
    trigger: str
    watcher: Watcher
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    started: float = field(default_factory=time.monotonic)
    launched: Launched | None = None
    cells: list[Cell] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    stuck: tuple[int, ...] = ()
    caps_run: list[str] = field(default_factory=list)  # a cap each client, in the order they ran
    seen_at_full: int | None = None

    def __post_init__(self) -> None:
        self.run_id = assemble.new_run_id(self.started_at, secrets.token_hex(2))
        self.seed = self.plan.seed if self.plan.seed is not None else random.SystemRandom().randrange(1 << 31)
        self.end = self.started + self.plan.sweep_deadline

    def run(self) -> SweepDocument | Refusal:
        if self.stop.requested:
            return Refusal(reason=Reason.STOPPED, detail="the sweep was asked to end before it began")
        snapshot = self.ports.look()
        permit = self.decide(snapshot)
        if isinstance(permit, Refusal):
            return permit
        self.announce(permit)
        with LauncherLog() as log:
            launched = self.launch(log)
            if isinstance(launched, Refusal):
                return launched
            # It has nothing left to do when its last child is gone.
            with let_go(launched, within=min(2.0, self.plan.drain_deadline)):
                talk = self.talk(launched, log, permit)
        return talk if isinstance(talk, Refusal) else self.write_down(snapshot, permit, talk)

    def talk(self, launched: Launched, log: LauncherLog, permit: Permit) -> _Talk | Refusal:
        """Everything that is said with the launcher, from its first words to its last cell."""
        asked = time.monotonic()
        conversation = Conversation(launched, self.stop)
        ready = await_ready(conversation, log, until=min(asked + self.plan.launch_deadline, self.end))
        if isinstance(ready, Refusal):
            return ready
        doubt = doubt_ready(ready, launched, ports=self.ports, limits=self.limits, simulated=permit.simulated)
        if doubt is not None:
            return doubt
        timings = {"import": ready.import_seconds, "ready": time.monotonic() - asked}
        self.watch(steps.Ready(seconds=timings["ready"]))
        last = self.run_cells(self.bench(conversation, log), permit)
        if isinstance(last, Refusal):
            return last
        conversation.say({"end": True})
        return _Talk(ready=ready, permit=last, timings=timings)

    # --- before the first cell

    def decide(self, snapshot: PollSnapshot, permitted: Permit | None = None) -> Permit | Refusal:
        ours = self.launched.pid if self.launched else None
        circumstances = Circumstances(
            need_bytes=self.plan.memory_bytes,
            last_fault_age=self.ports.last_fault_age(),
            lock_holders=lock_holders(
                self.ports.processes, self.daemon.pipe_directory, but=ours, left_over=left_behind()
            ),
            available_memory=available_memory(self.ports.meminfo),
            sweep_longest=self.plan.sweep_deadline + self.plan.drain_deadline,
        )
        return decide(
            snapshot,
            daemon=self.daemon.name,
            gpu_uuid=self.gpu_uuid,
            limits=self.limits,
            circumstances=circumstances,
            permitted=permitted,
            cells_run=len(self.caps_run),
        )

    def announce(self, permit: Permit) -> None:
        """A crash loop must not sweep, so the start is on disk before the launcher is there."""
        caps = ",".join(self.plan.caps)
        message = f"sweep {self.run_id} starts under server {permit.server_pid}: caps {caps}"
        details = {"caps": caps, "trigger": self.trigger, "server_pid": permit.server_pid}
        self.record("sweep_started", message, simulated=permit.simulated, details=details)
        self.ports.log("sweep started", run_id=self.run_id, caps=caps, server_pid=permit.server_pid)

    def launch(self, log: LauncherLog) -> Launched | Refusal:
        runtime = self.ports.runtime
        self.watch(steps.Importing(run_id=self.run_id, client_runtime=runtime.describe()))
        try:
            self.launched = runtime.start(
                pipe_directory=self.daemon.pipe_directory, gpu_uuid=self.gpu_uuid, log_fd=log.fd
            )
        except MpswatchError as error:
            return Refusal(reason=error.reason, detail=error.detail, remedy=error.remedy)
        except OSError as error:
            return Refusal(reason=Reason.CLIENT_ERROR, detail=f"the launcher could not be started: {error.strerror}")
        return self.launched

    def bench(self, conversation: Conversation, log: LauncherLog) -> Bench:
        return Bench(
            plan=self.plan,
            seed=self.seed,
            limits=self.limits,
            gpu_uuid=self.gpu_uuid,
            ports=self.ports,
            conversation=conversation,
            log=log,
            sweep_end=self.end,
            watch=self.watch,
            request=self.plan.request(),
            look=self.plan.thorough.look if self.plan.thorough is not None else None,
        )

    # --- the cells

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
                self.watch(steps.Refused(reason=gate.reason, detail=gate.detail, remedy=gate.remedy))
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
                    self.watch(steps.Refused(reason=gate.reason, detail=gate.detail, remedy=gate.remedy))
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

    def gate(self, permitted: Permit) -> tuple[Permit, PollSnapshot] | Refusal:
        """The preflight once more, on a fresh look; a wish to stop and the sweep's deadline come first."""
        if self.stop.requested:
            return Refusal(reason=Reason.STOPPED, detail="the sweep was asked to end")
        if time.monotonic() >= self.end:
            return Refusal(reason=Reason.DEADLINE, detail=f"the sweep's {self.plan.sweep_deadline:.0f} s were over")
        snapshot = self.ports.look()
        permit = self.decide(snapshot, permitted)
        return permit if isinstance(permit, Refusal) else (permit, snapshot)

    def run_cell(
        self, bench: Bench, permit: Permit, snapshot: PollSnapshot, *, order: int, cap: str
    ) -> tuple[Outcome, Refusal | None]:
        """One cell, with the permit for the next, and why there must be none."""
        outcome = measure(bench, permit=permit, snapshot=snapshot, order=order, cap=cap, seen_at_full=self.seen_at_full)
        self.caps_run.append(cap)
        if cap == "100":
            self.seen_at_full = outcome.cell.sm_count
        if outcome.result is not None:
            self.results.append(outcome.result)
        if outcome.left.stuck:
            self.report_stuck(outcome)
        if outcome.over is None:
            return outcome, None
        if outcome.over.reason is Reason.STOPPED or self.stop.requested:
            return outcome, Refusal(reason=Reason.STOPPED, detail="the sweep was asked to end")
        if time.monotonic() >= self.end:
            return outcome, Refusal(reason=Reason.DEADLINE, detail="the sweep's time was over")
        detail = f"not run, because the cell at {cap} % ended with {outcome.over.reason.value}"
        return outcome, Refusal(reason=Reason.NOT_RUN, detail=detail)

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

    def report_stuck(self, outcome: Outcome) -> None:
        pids = outcome.left.stuck
        self.stuck = tuple(sorted({*self.stuck, *pids}))
        self.record(
            "client_stuck",
            f"a measuring client of sweep {self.run_id} did not leave in time and was left alone",
            simulated=outcome.permit.simulated,
            reason=Reason.CLIENT_STUCK,
            details={"pids": list(pids), "cap": outcome.cell.cap, "failure": outcome.cell.failure},
        )

    # --- the document

    def write_down(self, snapshot: PollSnapshot, permit: Permit, talk: _Talk) -> SweepDocument:
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

    # --- around it all

    def refused(self, refusal: Refusal) -> None:
        self.ports.log("sweep refused", reason=refusal.reason.value, detail=refusal.detail, remedy=refusal.remedy)
        self.watch(steps.Refused(reason=refusal.reason, detail=refusal.detail, remedy=refusal.remedy))

    def record(
        self, kind: EventKind, message: str, *, simulated: bool, details: dict[str, Any], reason: Reason | None = None
    ) -> None:
        self.ports.record(
            Event(
                kind=kind,
                at=datetime.now(UTC),
                host=self.host,
                message=message,
                simulated=simulated,
                daemon=self.daemon.name,
                gpu_uuid=self.gpu_uuid,
                plan=self.plan.name,
                run_id=self.run_id,
                reason=reason,
                details=details,
            )
        )

    def watch(self, step: steps.Progress) -> None:
        """Whoever watches may fail (a closed terminal): the sweep goes on."""
        try:
            self.watcher(step)
        except Exception as error:  # noqa: BLE001 - a spectator's fault must not end a sweep in mid-cell
            self.watcher = unwatched
            self.ports.log("progress is no longer shown", error=repr(error))
