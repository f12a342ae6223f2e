"""One attempt to sweep: each target in turn, in the thread that calls. Whatever happens is a fact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mpswatch.daemon.events import Target
from mpswatch.daemon.parts import Parts, matrix
from mpswatch.documents import Event, Fact, InterferenceDocument, Reason, SweepDocument
from mpswatch.errors import MpswatchError
from mpswatch.sweep.assignment import Assignment
from mpswatch.sweep.interference import run_interference
from mpswatch.sweep.permit import Refusal
from mpswatch.sweep.ports import Ports, Watcher
from mpswatch.sweep.run import run_sweep
from mpswatch.sweep.runtime import Runtime
from mpswatch.sweep.stop import Stop


class StartNotRecordedError(MpswatchError):
    """The start of a sweep could not be made durable, so it did not start."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What an attempt needs besides the parts.

    `plan` is quick, thorough or interference: what its events and documents are filed under. `record` makes a fact
    durable before it returns, and names the sinks that failed. Unless the sweep `may_start_unrecorded`, it does not
    start where its start could not be written down: a crash loop would sweep.
    """

    trigger: str
    targets: Sequence[Target]
    stop: Stop
    runtime: Runtime
    record: Callable[[Fact], Sequence[str]]
    last_fault_age: Callable[[str], float | None]
    plan: str = "quick"
    may_start_unrecorded: bool = True
    progress: Watcher = lambda _step: None
    log: Callable[..., object] = lambda _event, **_fields: None


Outcome: TypeAlias = SweepDocument | InterferenceDocument | Event
"""A document, or the event that says why there is none (`sweep_refused`, `sweep_failed`): already recorded."""


def sweep_targets(parts: Parts, attempt: Attempt) -> tuple[Outcome, ...]:
    """Sweep one target after the other; a stop leaves out those that have not begun."""
    outcomes: list[Outcome] = []
    for target in attempt.targets:
        if attempt.stop.requested and outcomes:
            break
        outcome = _sweep(parts, attempt, target)
        attempt.record(outcome)
        outcomes.append(outcome)
    return tuple(outcomes)


def refused(parts: Parts, target: Target, refusal: Refusal, trigger: str, plan: str) -> Event:
    """The refusal of a sweep as an event."""
    return parts.events.event(
        "sweep_refused",
        refusal.detail,
        target=target,
        plan=plan,
        reason=refusal.reason,
        remedy=refusal.remedy,
        trigger=trigger,
    )


def _sweep(parts: Parts, attempt: Attempt, target: Target) -> Outcome:
    plan = attempt.plan
    try:
        outcome = _measure(parts, attempt, target)
    except StartNotRecordedError as error:
        refusal = Refusal(reason=error.reason, detail=error.detail, remedy=error.remedy)
        return refused(parts, target, refusal, attempt.trigger, plan)
    except Exception as error:  # noqa: BLE001 - a fault of one sweep must not end the daemon, nor be silent
        reason = error.reason if isinstance(error, MpswatchError) else Reason.INTERNAL_ERROR
        detail = str(error) if isinstance(error, MpswatchError) else f"{type(error).__name__}: {error}"
        attempt.log("the sweep failed", reason=reason.value, exc_info=error)  # the traceback; the event says the rest
        return parts.events.event(
            "sweep_failed", detail[:1000], target=target, plan=plan, reason=reason, trigger=attempt.trigger
        )
    return refused(parts, target, outcome, attempt.trigger, plan) if isinstance(outcome, Refusal) else outcome


def _measure(parts: Parts, attempt: Attempt, target: Target) -> SweepDocument | InterferenceDocument | Refusal:
    assignment: Assignment = {
        "plan": parts.plan_of(attempt.plan),
        "daemon": parts.address(target.daemon),
        "gpu_uuid": target.gpu_uuid,
        "host": parts.config.host,
        "limits": parts.limits,
        "ports": _ports(parts, attempt, target),
        "stop": attempt.stop,
        "trigger": attempt.trigger,
        "progress": attempt.progress,
    }
    if attempt.plan == "interference":
        return run_interference(matrix=matrix(parts.config), **assignment)
    return run_sweep(**assignment)


def _ports(parts: Parts, attempt: Attempt, target: Target) -> Ports:
    return Ports(
        look=parts.poller.look,
        look_at_daemon=lambda: parts.poller.look_at_daemon(target.daemon),
        conditions=parts.poller.conditions,
        processes=parts.processes,
        runtime=attempt.runtime,
        record=lambda fact: _record(attempt, fact),
        last_fault_age=lambda: attempt.last_fault_age(target.daemon),
        log=attempt.log,
    )


def _record(attempt: Attempt, fact: Fact) -> None:
    failed = attempt.record(fact)
    started = isinstance(fact, Event) and fact.kind == "sweep_started"
    if started and "archive" in failed and not attempt.may_start_unrecorded:
        raise StartNotRecordedError(
            Reason.ARCHIVE_WRITE_FAILED,
            "the start of the sweep could not be written down, and a daemon that crashes would sweep at each start",
            "make the archive writable (mpswatch doctor), or wait: after one interval it sweeps all the same",
        )
