"""How attempts to measure went: which run now, how they ended, which clients of ours are stuck."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection
from datetime import datetime

from mpswatch.documents import Event, Reason, SweepDocument
from mpswatch.latest.view import Measurement, Outcome, Run, Target, finished_at, outcome

RECENT_RUNS = 20


class Attempts:
    """Counts since the start of this process; `runs` are the newest, of other processes too. Not locked: its owner is.

    One attempt gives exactly one of: a document, an Event `sweep_refused`, an Event `sweep_failed`.
    `running` and `stuck` go by daemon and GPU.
    """

    def __init__(self) -> None:
        self.outcomes: Counter[tuple[Target, Outcome]] = Counter()
        self.refusals: Counter[tuple[Target, Reason]] = Counter()
        self.refused: dict[Target, Event] = {}
        self.running: set[tuple[str, str]] = set()
        self.stuck: dict[tuple[str, str], tuple[int, ...]] = {}
        self.runs: deque[Run] = deque(maxlen=RECENT_RUNS)

    def executed(self, target: Target, document: Measurement) -> None:
        """Count a run of ours, which has left the GPU, but for the clients that it names as stuck."""
        self.outcomes[target, outcome(document)] += 1
        self._forget_refusal(target)
        self.running.discard(target[:2])
        self.stuck[target[:2]] = document.stuck_clients

    def hear(self, target: Target, event: Event) -> None:
        """Take note of what an attempt of ours says while it has no document; other events say nothing here."""
        match event.kind:
            case "sweep_started":
                self.running.add(target[:2])
            case "client_stuck":
                pids = event.details.get("pids", ())
                self.stuck[target[:2]] = tuple(pid for pid in pids if isinstance(pid, int))
            case "sweep_refused":
                reason = event.reason or Reason.INTERNAL_ERROR
                self._without_document(target, event, "refused")
                self.refusals[target, reason] += 1
                self.refused[target] = event
            case "sweep_failed":
                self._without_document(target, event, "failed")
            case _:
                pass

    def list_run(self, target: Target, document: SweepDocument) -> None:
        """Put a run, whoever made it, on top of the list of recent ones."""
        run = Run(finished_at(document), target, outcome(document), None, document.partial_run_note, document.run_id)
        self.runs.appendleft(run)

    def overtaken(self, target: Target, at: datetime) -> None:
        """Forget a refusal from before `at`, when another process finished a run of this target."""
        for refused in _with_unknown_gpu(target):
            if refused in self.refused and self.refused[refused].at < at:
                del self.refused[refused]

    def keep(self, daemons: Collection[str]) -> None:
        """Forget the attempts under all other daemons, but for the list of recent runs."""
        self.outcomes = Counter({key: n for key, n in self.outcomes.items() if key[0].daemon in daemons})
        self.refusals = Counter({key: n for key, n in self.refusals.items() if key[0].daemon in daemons})
        self.refused = {target: event for target, event in self.refused.items() if target.daemon in daemons}
        self.running = {place for place in self.running if place[0] in daemons}
        self.stuck = {place: pids for place, pids in self.stuck.items() if place[0] in daemons}

    def _without_document(self, target: Target, event: Event, how: Outcome) -> None:
        self._forget_refusal(target)
        self.running.discard(target[:2])
        self.outcomes[target, how] += 1
        reason = event.reason or Reason.INTERNAL_ERROR
        self.runs.appendleft(Run(event.at, target, how, reason, event.message, event.run_id))

    def _forget_refusal(self, target: Target) -> None:
        for refused in _with_unknown_gpu(target):
            self.refused.pop(refused, None)


def _with_unknown_gpu(target: Target) -> tuple[Target, Target]:
    """A refusal of a target may have been recorded while its GPU was unknown."""
    return (target, target._replace(gpu_uuid=""))
