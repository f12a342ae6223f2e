"""What a sweep and an interference measurement share: preflight, launcher, permits, and what is told of them.

Synchronous; runs in a thread of its own. The kinds differ in what they ask of the launcher, and what they write down.
"""

from __future__ import annotations

import abc
import random
import secrets
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Generic, TypeVar

from mpswatch.documents import Event, EventKind, InterferenceDocument, PollSnapshot, Reason, SweepDocument
from mpswatch.errors import MpswatchError
from mpswatch.process.launch import Launched
from mpswatch.sweep import assemble
from mpswatch.sweep import progress as steps
from mpswatch.sweep.bench import Bench
from mpswatch.sweep.circumstances import available_memory, lock_holders
from mpswatch.sweep.conversation import Conversation
from mpswatch.sweep.launching import await_ready, doubt_ready, left_behind, let_go
from mpswatch.sweep.log import LauncherLog
from mpswatch.sweep.messages import Ready
from mpswatch.sweep.permit import Circumstances, Limits, Permit, Refusal
from mpswatch.sweep.plan import Plan
from mpswatch.sweep.ports import Address, Ports, Watcher, unwatched
from mpswatch.sweep.preflight import decide
from mpswatch.sweep.stop import Stop

D = TypeVar("D", SweepDocument, InterferenceDocument)


@dataclass(frozen=True, kw_only=True)
class Talked:
    """What came of talking with the launcher, beside the cells."""

    ready: Ready
    permit: Permit
    timings: dict[str, float]


@dataclass(kw_only=True)
class Session(abc.ABC, Generic[D]):
    """One launcher's life, given an `Assignment`. `clients_run` counts the children that were asked for."""

    plan: Plan
    daemon: Address
    gpu_uuid: str
    host: str
    limits: Limits
    ports: Ports
    stop: Stop
    trigger: str
    progress: Watcher = unwatched
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    started: float = field(default_factory=time.monotonic)
    launched: Launched | None = None
    stuck: tuple[int, ...] = ()
    clients_run: int = 0

    what: ClassVar[str] = "sweep"

    def __post_init__(self) -> None:
        self.run_id = assemble.new_run_id(self.started_at, secrets.token_hex(2))
        self.seed = self.plan.seed if self.plan.seed is not None else random.SystemRandom().randrange(1 << 31)
        self.end = self.started + self.plan.sweep_deadline

    @abc.abstractmethod
    def run_cells(self, bench: Bench, permit: Permit) -> Permit | Refusal:
        """All there is to measure. The newest permit, or a `Refusal` when not even the first child was asked for."""

    @abc.abstractmethod
    def write_down(self, snapshot: PollSnapshot, permit: Permit, talk: Talked) -> D:
        """The document; `snapshot` and `permit` are those of the first preflight."""

    @property
    def plan_name(self) -> str:
        """What events call it."""
        return self.plan.name

    @property
    def caps(self) -> tuple[str, ...]:
        """Under which caps clients will run."""
        return self.plan.caps

    @property
    def need_bytes(self) -> int:
        """Device memory that must be free."""
        return self.plan.memory_bytes

    def run(self) -> D | Refusal:
        """Measure, and write down what came of it; the caller records that."""
        outcome = self._run()
        if isinstance(outcome, Refusal):
            said = {"reason": outcome.reason.value, "detail": outcome.detail, "remedy": outcome.remedy}
            self.ports.log(f"{self.what} refused", **said)
            self.watch_refusal(outcome)
        return outcome

    def _run(self) -> D | Refusal:
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

    def talk(self, launched: Launched, log: LauncherLog, permit: Permit) -> Talked | Refusal:
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
        return Talked(ready=ready, permit=last, timings=timings)

    # --- before the first cell

    def decide(self, snapshot: PollSnapshot, permitted: Permit | None = None) -> Permit | Refusal:
        ours = self.ports.runtime.launcher_pid(self.launched) if self.launched else None
        circumstances = Circumstances(
            need_bytes=self.need_bytes,
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
            cells_run=self.clients_run,
        )

    def announce(self, permit: Permit) -> None:
        """A crash loop must not sweep, so the start is on disk before the launcher is there."""
        caps = ",".join(self.caps)
        message = f"{self.what} {self.run_id} starts under server {permit.server_pid}: caps {caps}"
        details = {"caps": caps, "trigger": self.trigger, "server_pid": permit.server_pid}
        self.record("sweep_started", message, simulated=permit.simulated, details=details)
        self.ports.log(f"{self.what} started", run_id=self.run_id, caps=caps, server_pid=permit.server_pid)

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

    # --- between cells

    def gate(self, permitted: Permit) -> tuple[Permit, PollSnapshot] | Refusal:
        """The preflight once more, on a fresh look; a wish to stop and the sweep's deadline come first."""
        if self.stop.requested:
            return Refusal(reason=Reason.STOPPED, detail="the sweep was asked to end")
        if time.monotonic() >= self.end:
            return Refusal(reason=Reason.DEADLINE, detail=f"the sweep's {self.plan.sweep_deadline:.0f} s were over")
        snapshot = self.ports.look()
        permit = self.decide(snapshot, permitted)
        return permit if isinstance(permit, Refusal) else (permit, snapshot)

    def over(self, reason: Reason, detail: str) -> Refusal:
        """Why nothing further runs: a wish to stop and the end of its time come before what went wrong."""
        if reason is Reason.STOPPED or self.stop.requested:
            return Refusal(reason=Reason.STOPPED, detail="the sweep was asked to end")
        if time.monotonic() >= self.end:
            return Refusal(reason=Reason.DEADLINE, detail="the sweep's time was over")
        return Refusal(reason=Reason.NOT_RUN, detail=detail)

    def report_stuck(self, pids: tuple[int, ...], *, simulated: bool, **details: object) -> None:
        self.stuck = tuple(sorted({*self.stuck, *pids}))
        self.record(
            "client_stuck",
            f"a measuring client of {self.what} {self.run_id} did not leave in time and was left alone",
            simulated=simulated,
            reason=Reason.CLIENT_STUCK,
            details={"pids": list(pids), **details},
        )

    # --- around it all

    def watch_refusal(self, refusal: Refusal) -> None:
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
                plan=self.plan_name,
                run_id=self.run_id,
                reason=reason,
                details=details,
            )
        )

    def watch(self, step: steps.Progress) -> None:
        """Whoever watches may fail (a closed terminal): the sweep goes on."""
        try:
            self.progress(step)
        except Exception as error:  # noqa: BLE001 - a spectator's fault must not end a sweep in mid-cell
            self.progress = unwatched
            self.ports.log("progress is no longer shown", error=repr(error))
