"""What was measured: the newest run and interference of each target, how attempts at it went, how runs stand."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from mpswatch.documents import HistoryLook, InterferenceDocument
from mpswatch.latest.attempts import RECENT_RUNS, Attempts
from mpswatch.latest.fading import Fading
from mpswatch.latest.view import (
    INTERFERENCE,
    InterferenceHealth,
    Measurement,
    SweepHealth,
    Target,
    finished_at,
    outcome,
)


class Measured:
    """Holds the newest of each. All times are seconds of one monotonic clock. Not locked: its owner is."""

    def __init__(self) -> None:
        self.sweeps: Fading[Target, SweepHealth] = Fading()
        self.interferences: Fading[tuple[str, str], InterferenceHealth] = Fading()
        self.attempts = Attempts()
        self._history: deque[HistoryLook] = deque(maxlen=RECENT_RUNS)

    def take(self, target: Target, document: Measurement, *, expires: float, now: float) -> None:
        """Take the newest of `target`, which is shown until `expires`."""
        at = finished_at(document)
        if isinstance(document, InterferenceDocument):
            health = InterferenceHealth(document, at, document.run_id)
            self.interferences.put(target[:2], health, expires=expires, now=now)
            return
        ended, known = outcome(document), self.sweeps.health.get(target)
        self.sweeps.put(
            target,
            SweepHealth(
                document=document,
                caps=tuple(cell.cap for cell in document.cells),
                outcome=ended,
                finished_at=at,
                last_success_at=at if ended == "complete" else known.last_success_at if known is not None else None,
            ),
            expires=expires,
            now=now,
        )
        self.attempts.list_run(target, document)

    def is_news(self, target: Target, document: Measurement) -> bool:
        """Say whether `document` is newer than what is known of `target`."""
        place = target[:2]
        known = self.interferences.health.get(place) if target.plan == INTERFERENCE else self.sweeps.health.get(target)
        return known is None or known.finished_at < finished_at(document)

    def judged(self, look: HistoryLook) -> None:
        """Take how a run stands against earlier ones."""
        self._history.append(look)

    def standings(self) -> dict[Target, HistoryLook]:
        """Give how each run that is shown stands, where that was found; nothing of another run's."""
        return {
            target: look
            for target, health in self.sweeps.health.items()
            for look in self._history
            if health.document is not None and look.run_id and look.run_id == health.document.run_id
        }

    def targets(self) -> set[Target]:
        """Give the targets of all runs and attempts."""
        attempted = (target for target, _ in self.attempts.outcomes)
        return {*self.sweeps.health, *self.attempts.refused, *attempted}

    def keep(self, daemons: Collection[str]) -> None:
        """Forget what was measured under all other daemons."""
        for part in (self.sweeps, self.interferences, self.attempts):
            part.keep(daemons)

    def expire(self, now: float) -> bool:
        """Take out the documents whose time has come; True if there were any."""
        sweeps, interferences = self.sweeps.expire(now), self.interferences.expire(now)
        return sweeps or interferences

    def expiries(self) -> list[float]:
        """Say when documents go."""
        return [*self.sweeps.expiries(), *self.interferences.expiries()]
