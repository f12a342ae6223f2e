"""A whole sweep: preflight, launcher, one cell after another, document. Synchronous; runs in a thread of its own."""

from __future__ import annotations

import contextlib
import random
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from mpswatch.documents import Cell, Event, PollSnapshot, Reason, SweepDocument
from mpswatch.errors import MpswatchError
from mpswatch.proc import ProcessGone
from mpswatch.process.launch import Launched
from mpswatch.sweep import assemble
from mpswatch.sweep import progress as steps
from mpswatch.sweep.cells import Bench, Outcome, measure, said_reason
from mpswatch.sweep.conversation import Babble, Conversation, Ended, Late, Stopped
from mpswatch.sweep.log import LauncherLog
from mpswatch.sweep.membership import pauses
from mpswatch.sweep.messages import Failed, Ready, Result
from mpswatch.sweep.permit import Circumstances, Limits, LockHolder, Permit, Refusal
from mpswatch.sweep.plan import Plan
from mpswatch.sweep.ports import Address, Ports, Watcher, unwatched
from mpswatch.sweep.preflight import decide
from mpswatch.sweep.stop import Stop

# The launcher has nothing left to do when its last child is gone.
_LAUNCHER_LEAVES = 2.0

_left_behind: list[Launched] = []
"""Launchers that had not ended when their sweep did: they are reaped when the next sweep starts."""


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
        ports.log("sweep refused", reason=outcome.reason.value, detail=outcome.detail, remedy=outcome.remedy)
        sweep.watch(_refused(outcome))
    return outcome


def _refused(refusal: Refusal) -> steps.Refused:
    return steps.Refused(reason=refusal.reason, detail=refusal.detail, remedy=refusal.remedy)


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

    def __post_init__(self) -> None:
        self.run_id = assemble.new_run_id(self.started_at, secrets.token_hex(2))
        self.seed = self.plan.seed if self.plan.seed is not None else random.SystemRandom().randrange(1 << 31)
        self.end = self.started + self.plan.sweep_deadline

    def run(self) -> SweepDocument | Refusal:
        _reap()
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
            with _let_go(launched):
                conversation = Conversation(launched, self.stop)
                launch_time = time.monotonic()
                ready = self.await_ready(conversation, log, simulated=permit.simulated)
                if isinstance(ready, Refusal):
                    return ready
                ready_after = time.monotonic() - launch_time
                self.watch(steps.Ready(seconds=ready_after))
                bench = Bench(
                    plan=self.plan,
                    seed=self.seed,
                    limits=self.limits,
                    gpu_uuid=self.gpu_uuid,
                    ports=self.ports,
                    conversation=conversation,
                    log=log,
                    sweep_end=self.end,
                    watch=self.watch,
                )
                last = self.run_cells(bench, permit)
                if isinstance(last, Refusal):
                    return last
                conversation.say({"end": True})
        finished = time.monotonic()
        timings = {"import": ready.import_seconds, "ready": ready_after, "sweep": finished - self.started}
        document = assemble.document(
            assemble.Run(
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
                last_permit=last,
                ready=ready,
                cells=self.cells,
                results=self.results,
                timings=timings,
                stuck=self.stuck,
                after=self.ports.look_at_daemon(),
                finished_at=datetime.now(UTC),
            )
        )
        self.watch(steps.Finished(seconds=finished - self.started, measured=len(self.results), of=len(self.plan.caps)))
        return document

    # --- before the first cell

    def decide(self, snapshot: PollSnapshot, permitted: Permit | None = None) -> Permit | Refusal:
        circumstances = Circumstances(
            need_bytes=self.plan.memory_bytes,
            last_fault_age=self.ports.last_fault_age(),
            lock_holders=self.lock_holders(),
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
            cells_run=len(self.cells),
        )

    def lock_holders(self) -> tuple[LockHolder, ...]:
        """Who holds the lock on the pipe directory, our own launcher apart."""
        processes = self.ports.processes
        try:
            holders = processes.flock_holders(self.daemon.pipe_directory)
        except OSError:
            return ()  # no pipe directory: the control daemon is refused for its absence
        ours = self.launched.pid if self.launched else None
        found = []
        for pid in holders:
            if pid == ours:
                continue
            found.append(LockHolder(pid=pid, age_seconds=self.age(pid)))
        return tuple(found)

    def age(self, pid: int) -> float | None:
        """Seconds since that process started, None when it is gone, 0 where it may not be looked at."""
        processes = self.ports.processes
        try:
            return processes.age_seconds(processes.facts(pid)) or 0.0
        except ProcessGone as error:
            return 0.0 if error.reason is Reason.PERMISSION else None

    def announce(self, permit: Permit) -> None:
        """A crash loop must not sweep, so the start is on disk before the launcher is there."""
        caps = ",".join(self.plan.caps)
        self.ports.record(
            Event(
                kind="sweep_started",
                at=datetime.now(UTC),
                host=self.host,
                message=f"sweep {self.run_id} starts under server {permit.server_pid}: caps {caps}",
                simulated=permit.simulated,
                daemon=self.daemon.name,
                gpu_uuid=self.gpu_uuid,
                plan=self.plan.name,
                run_id=self.run_id,
                details={"caps": caps, "trigger": self.trigger, "server_pid": permit.server_pid},
            )
        )
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

    def await_ready(self, conversation: Conversation, log: LauncherLog, *, simulated: bool) -> Ready | Refusal:
        """The launcher's first words. Whatever else it says, no context was made: the sweep is refused."""
        patience = min(time.monotonic() + self.plan.launch_deadline, self.end)
        heard = conversation.hear(until=patience)
        words = log.last()
        said = f"; its last words: {words}" if words else ""
        match heard:
            case Ready():
                return self.checked(heard, conversation.launched, simulated=simulated)
            case Failed():
                reason = said_reason(heard)
                return Refusal(reason=reason, detail=f"{heard.detail or heard.reason}{said}", remedy=_remedy(reason))
            case Stopped():
                return Refusal(reason=Reason.STOPPED, detail="the sweep was asked to end before its first cell")
            case Late():
                detail = f"the launcher was not ready after {self.plan.launch_deadline:.0f} s{said}"
                return Refusal(reason=Reason.DEADLINE, detail=detail)
            case Ended(status=127):
                reason = Reason.CLIENT_PROGRAM_MISSING
                return Refusal(reason=reason, detail=f"the launcher could not run{said}", remedy=_remedy(reason))
            case Ended(status=status):
                return Refusal(reason=Reason.CLIENT_DIED, detail=f"the launcher ended (status {status}){said}")
            case Babble(detail=detail):
                return Refusal(reason=Reason.CLIENT_NONSENSE, detail=detail)
        detail = f"the launcher said {type(heard).__name__.lower()} before it was ready"
        return Refusal(reason=Reason.CLIENT_NONSENSE, detail=detail)

    def checked(self, ready: Ready, launched: Launched, *, simulated: bool) -> Ready | Refusal:
        if ready.lock != "held":
            return Refusal(reason=Reason.SWEEP_RUNNING, detail="the launcher does not hold the pipe directory's lock")
        if ready.torch is None and ready.numpy is None:
            return Refusal(reason=Reason.CLIENT_NONSENSE, detail="the launcher names no library that it computes with")
        if ready.torch is None and not simulated:
            detail = "the client computes with numpy on the CPU, and this is no rehearsal stack"
            return Refusal(reason=Reason.NOT_SUPPORTED, detail=detail, remedy=_remedy(Reason.CLIENT_IMPORT_FAILED))
        if self.ports.runtime.name == "process":
            try:
                uid = self.ports.processes.facts(launched.pid).uid
            except ProcessGone:
                return Refusal(reason=Reason.CLIENT_DIED, detail="the launcher ended when it was ready")
            if uid != self.limits.client_uid:
                return Refusal(
                    reason=Reason.UID_MISMATCH,
                    detail=f"the launcher runs as uid {uid}, and the preflight was for {self.limits.client_uid}",
                )
        return ready

    # --- the cells

    def run_cells(self, bench: Bench, permit: Permit) -> Permit | Refusal:
        """Every cap gets its cell. The newest permit, or a `Refusal` when not even the first cell was asked for."""
        over: Refusal | None = None
        for order, cap in enumerate(self.plan.caps, 1):
            if over is None:
                gate = self.gate(permit)
                if not isinstance(gate, Refusal):
                    permit, over = self.run_cell(bench, *gate, order=order, cap=cap)
                    continue
                if order == 1:
                    return gate
                over = gate
                self.watch(_refused(gate))
            cell = assemble.not_run(
                plan=self.plan, order=order, cap=cap, permit=permit, reason=over.reason, detail=over.detail
            )
            self.done(cell)
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
    ) -> tuple[Permit, Refusal | None]:
        """One cell; then the permit for the next, and why there must be none."""
        outcome = measure(
            bench, permit=permit, snapshot=snapshot, order=order, cap=cap, seen_at_full=self.seen_at_full()
        )
        self.done(outcome.cell)
        if outcome.result is not None and outcome.cell.state != "unknown":
            self.results.append(outcome.result)
        if outcome.someone_stuck:
            self.report_stuck(outcome)
        if outcome.over is None:
            return outcome.permit, None
        if outcome.over.reason is Reason.STOPPED or self.stop.requested:
            return outcome.permit, Refusal(reason=Reason.STOPPED, detail="the sweep was asked to end")
        if time.monotonic() >= self.end:
            return outcome.permit, Refusal(reason=Reason.DEADLINE, detail="the sweep's time was over")
        ended = f"not run, because the cell at {cap} % ended with {outcome.over.reason.value}"
        return outcome.permit, Refusal(reason=Reason.NOT_RUN, detail=ended)

    def seen_at_full(self) -> int | None:
        """How many SMs the 100 % cell saw, where it has run."""
        return next((cell.sm_count for cell in self.cells if cell.cap == "100"), None)

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
        self.stuck = tuple(sorted({*self.stuck, *outcome.stuck}))
        self.ports.record(
            Event(
                kind="client_stuck",
                at=datetime.now(UTC),
                host=self.host,
                message=f"a measuring client of sweep {self.run_id} did not leave in time and was left alone",
                simulated=outcome.permit.simulated,
                daemon=self.daemon.name,
                gpu_uuid=self.gpu_uuid,
                plan=self.plan.name,
                run_id=self.run_id,
                reason=Reason.CLIENT_STUCK,
                details={"pids": list(outcome.stuck), "cap": outcome.cell.cap, "failure": outcome.cell.failure},
            )
        )

    # --- around it all

    def watch(self, step: steps.Progress) -> None:
        """Whoever watches may fail (a closed terminal): the sweep goes on."""
        try:
            self.watcher(step)
        except Exception as error:  # noqa: BLE001 - a spectator's fault must not end a sweep in mid-cell
            self.watcher = unwatched
            self.ports.log("progress is no longer shown", error=repr(error))


@contextlib.contextmanager
def _let_go(launched: Launched) -> Iterator[None]:
    """Whatever happens within, the launcher's lifeline closes, and it gets a moment to end."""
    try:
        yield
    finally:
        launched.hang_up()
        until, pause = time.monotonic() + _LAUNCHER_LEAVES, pauses()
        while launched.exited() is None and time.monotonic() < until:
            time.sleep(min(pause(), 0.05))
        launched.close()
        if launched.exited() is None:
            _left_behind.append(launched)


def _reap() -> None:
    _left_behind[:] = [launched for launched in _left_behind if launched.exited() is None]


def _remedy(reason: Reason) -> str | None:
    if reason in {Reason.CLIENT_IMPORT_FAILED, Reason.CLIENT_PROGRAM_MISSING}:
        return "set sweep.client.python to a Python that has torch"
    if reason is Reason.SWEEP_RUNNING:
        return "wait until the other sweep is done"
    return None


def available_memory(meminfo: Path) -> int | None:
    """MemAvailable in bytes, None where it cannot be read."""
    try:
        text = meminfo.read_text()
        line = next(line for line in text.splitlines() if line.startswith("MemAvailable:"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration, ValueError, IndexError):
        return None
