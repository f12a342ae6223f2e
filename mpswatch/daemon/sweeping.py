"""From the trigger to a sweep in a thread of its own, or to a recorded refusal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from mpswatch.daemon.events import Target
from mpswatch.daemon.first_sweep import AGAIN_AT_LEAST, again_in, due_now, first_sweep_in
from mpswatch.daemon.hold import hold
from mpswatch.daemon.own_schedules import intervals, starts_of
from mpswatch.daemon.parts import Parts, runtime
from mpswatch.daemon.restore import Restored
from mpswatch.daemon.said import Said
from mpswatch.daemon.sweeps import Attempt, Outcome, refused, sweep_targets
from mpswatch.daemon.targets import targets
from mpswatch.daemon.worker import Worker
from mpswatch.documents import Event, Fact, InterferenceDocument, PollSnapshot, Reason, SweepDocument
from mpswatch.process.bundle import client_zipapp
from mpswatch.sweep.permit import Refusal
from mpswatch.sweep.ports import Watcher
from mpswatch.sweep.stop import Stop


class Sweeping:
    """One sweep at a time. It is never cancelled: `stop` closes the client's lifeline, and it ends by itself."""

    def __init__(
        self,
        *,
        parts: Callable[[], Parts],
        snapshot: Callable[[], PollSnapshot | None],
        paused: Callable[[], bool],
        worker: Worker[tuple[Outcome, ...]],
        record: Callable[[Fact], object],
        record_durably: Callable[[Fact], Sequence[str]],
        last_fault_age: Callable[[str], float | None],
        again: Callable[[str, float], None],
        after: Callable[[Sequence[Outcome]], None],
        progress: Watcher,
        work_directory: Path,
        log: Any,  # noqa: ANN401 - structlog's loggers are proxies
    ) -> None:
        self._parts = parts
        self._snapshot = snapshot
        self._paused = paused
        self._worker = worker
        self._record = record
        self._record_durably = record_durably
        self._last_fault_age = last_fault_age
        self._again = again
        self._after = after
        self._progress = progress
        self._work_directory = work_directory
        self._log = log
        self._said = Said()
        self.newest_starts: dict[str, datetime] = {}
        self._stop: Stop | None = None
        self._started = time.monotonic()
        self._refusals: dict[str, int] = {}
        self._measured: dict[tuple[str, Target], float] = {}

    @property
    def running(self) -> bool:
        return self._worker.busy_seconds is not None

    @property
    def refused(self) -> bool:
        """Whether the last attempt of the quick plan was refused."""
        return self._refusals.get("quick", 0) > 0

    def attempt(self, trigger: str, plan: str = "quick") -> None:
        """Measure now, or record why not. `trigger` is `schedule` or what a person did (`signal`).

        `plan` is quick, thorough or interference. One that would begin while another runs waits for a minute.
        """
        parts, snapshot, asked_for = self._parts(), self._snapshot(), trigger != "schedule"
        if snapshot is None or self.running:
            why = "a sweep is running" if self.running else "there was no poll yet"
            self._log.info("no further sweep", trigger=trigger, plan=plan, detail=why)
            if plan != "quick":
                self._again(plan, AGAIN_AT_LEAST)
            return
        aims = targets(snapshot)
        if not asked_for:
            aims = self._due(plan, aims)
            if not aims:
                return
        settings = parts.config.sweep
        if plan != "quick":
            settings = replace(settings, enabled=True)  # it has a schedule of its own
        held = hold(settings, paused=self._paused(), asked_for=asked_for, now=datetime.now(UTC))
        refusal = Refusal(reason=held.reason, detail=held.detail, remedy=held.remedy) if held is not None else None
        if snapshot.simulated != parts.simulated:
            refusal = Refusal(
                reason=Reason.REHEARSAL_STACK,
                detail="the pipe directory turned from a real stack into a rehearsal's, or back",
                remedy="stop mpswatch; `mpswatch demo` is for rehearsals",
            )
        if refusal is not None:
            events = [refused(parts, target, refusal, trigger, plan) for target in aims]
            for event in events:
                self._record(event)
            self._finished(events, plan, again_in_seconds=held.seconds if held is not None else None)
            return
        stop = self._stop = Stop()
        self.newest_starts[plan] = datetime.now(UTC)
        attempt = Attempt(
            trigger=trigger,
            targets=aims,
            stop=stop,
            runtime=runtime(parts.config, client_zipapp(self._work_directory), simulated=parts.simulated),
            record=self._record_from_sweep,
            plan=plan,
            may_start_unrecorded=asked_for or time.monotonic() - self._started > self._interval(plan),
            last_fault_age=self._last_fault_age,
            progress=self._progress,
            log=self._log.debug,
        )
        began = time.monotonic()

        def finished(outcomes: tuple[Outcome, ...]) -> None:
            for target, outcome in zip(aims, outcomes, strict=False):  # a stop leaves some out
                if not isinstance(outcome, Event):
                    self._measured[plan, target] = began
            self._finished(outcomes, plan)

        self._worker.offer(lambda: sweep_targets(parts, attempt), finished, self._failed)

    def first_in(self, daemon: str, restored: Restored) -> float:
        """Seconds until the first sweep of a control daemon that was found just now: as after a start of ours."""
        now, today = time.monotonic(), datetime.now(UTC)
        ages = [now - at for (plan, target), at in self._measured.items() if (plan, target.daemon) == ("quick", daemon)]
        starts = [*starts_of(restored, "quick", daemon), *(today - timedelta(seconds=age) for age in ages)]
        return first_sweep_in(
            interval=self._interval("quick"),
            newest_start=max(starts, default=None),
            known=restored.known,
            now=today,
        )

    def _due(self, plan: str, aims: Sequence[Target]) -> tuple[Target, ...]:
        """Those that the schedule has not measured yet in this interval: the others are not disturbed because one was
        refused, or came later. The next trigger comes when the first of them is due.
        """
        ages = {aim: time.monotonic() - at for (of, aim), at in self._measured.items() if of == plan}
        due, next_in = due_now(aims, ages, interval=self._interval(plan), jitter=self._parts().config.sweep.jitter)
        if next_in is not None:
            self._again(plan, next_in)
        return due

    def _interval(self, plan: str) -> float:
        config = self._parts().config
        return intervals(config).get(plan, config.sweep.interval)

    def stop(self) -> None:
        """Close the lifeline of the sweep that runs, if one does: its client drains and leaves by itself."""
        if self._stop is not None:
            self._stop.request()

    def _record_from_sweep(self, fact: Fact) -> Sequence[str]:
        """In the sweep's thread."""
        if isinstance(fact, Event) and fact.kind in {"sweep_started", "client_stuck"}:
            say = self._log.info if fact.kind == "sweep_started" else self._log.error
            say(fact.message, daemon=fact.daemon, gpu=fact.gpu_uuid)
        return self._record_durably(fact)

    def _failed(self, error: Exception) -> None:
        self._log.error("the sweep failed", exc_info=error)

    def _finished(self, outcomes: Sequence[Outcome], plan: str, again_in_seconds: float | None = None) -> None:
        for outcome in outcomes:
            self._say(outcome)
        if any(isinstance(outcome, Event) for outcome in outcomes):
            self._refusals[plan] = self._refusals.get(plan, 0) + 1
            interval = self._interval(plan)
            soon = again_in_seconds or again_in(interval=interval, refusals=self._refusals[plan])
            self._again(plan, min(interval, soon))
        else:
            self._refusals[plan] = 0
        self._after(outcomes)

    def _say(self, outcome: Outcome) -> None:
        if isinstance(outcome, Event):
            subject = f"{outcome.daemon} {outcome.gpu_uuid} {outcome.plan}"
            if self._said.is_new(subject, str(outcome.reason)):
                self._log.warning(
                    "no sweep" if outcome.kind == "sweep_refused" else "the sweep failed",
                    plan=outcome.plan,
                    reason=outcome.reason,
                    detail=outcome.message,
                    remedy=outcome.details.get("remedy"),
                    daemon=outcome.daemon,
                    gpu=outcome.gpu_uuid,
                )
            return
        self._say_document(outcome)

    def _say_document(self, document: SweepDocument | InterferenceDocument) -> None:
        gpu = document.gpu.uuid if document.gpu is not None else ""
        daemon = document.mps.daemon if document.mps is not None else document.pipe_directory
        plan = "interference" if isinstance(document, InterferenceDocument) else document.protocol.plan
        self._said.is_new(f"{daemon} {gpu} {plan}", None)
        if isinstance(document, InterferenceDocument):
            self._log.info(
                "interference complete" if document.complete else "interference partial",
                daemon=daemon,
                gpu=gpu,
                run_id=document.run_id,
                note=document.partial_run_note,
            )
            return
        self._log.info(
            "sweep complete" if document.complete_sweep else "sweep partial",
            daemon=daemon,
            gpu=gpu,
            plan=plan,
            run_id=document.run_id,
            tflops=document.tflops_by_cap.value,
            note=document.partial_run_note,
        )
