"""The newest of everything, its age and its health: what goes stale is taken out, by a clock that never steps."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from mpswatch import __version__
from mpswatch.documents import (
    Event,
    Fact,
    HistoryLook,
    InterferenceDocument,
    PollSnapshot,
    Reason,
    SweepDocument,
)
from mpswatch.errors import MpswatchError
from mpswatch.latest.measured import Measured
from mpswatch.latest.polls import Polls
from mpswatch.latest.settings import Settings
from mpswatch.latest.view import ArchiveHealth, Measurement, RemoteHealth, Target, View, finished_at

D = TypeVar("D", SweepDocument, InterferenceDocument)

RECENT_EVENTS = 50


class WrongStackError(MpswatchError):
    """A simulated fact came to a real view, or a measured one to a rehearsal's: it is not taken in."""

    def __init__(self, fact: Fact) -> None:
        what = "simulated" if fact.simulated else "measured"
        super().__init__(
            Reason.REHEARSAL_STACK,
            f"a {what} {type(fact).__name__} does not belong here",
            "check which stack the pipe directory belongs to: `run` is for real ones, `demo` for the rehearsal",
        )


class Latest:
    """Takes in facts, from any thread, and gives out an immutable `View`.

    Ages of what this process saw itself are measured with `monotonic`; only a run read back from the archive has a
    wall-clock age, because nothing better exists then.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        host: str,
        simulated: bool,
        started_at: datetime | None = None,
        version: str = __version__,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = threading.Lock()
        self._monotonic = monotonic
        self._settings = settings
        self._host = host
        self._simulated = simulated
        self._mpswatch_version = version
        self._started_at = started_at or datetime.now(UTC)
        self._targets: tuple[Target, ...] = ()
        self._polls = Polls()
        self._measured = Measured()
        self._server_changes: Counter[str] = Counter()
        self._gpu_faults: Counter[str] = Counter()
        self._fault_logs: dict[str, Reason | None] = {}
        self._paused = False
        self._archive = ArchiveHealth()
        self._sink_failures: Counter[str] = Counter()
        self._events: deque[Event] = deque(maxlen=RECENT_EVENTS)
        self._view: View | None = None
        self._version = 0

    # --- what the daemon tells -----------------------------------------------------------------

    def configure(self, settings: Settings) -> None:
        """Take the settings of a reload, or other daemons: of one that is not among them nothing is shown any more."""
        with self._changing():
            self._settings = settings
            watched = {"", *settings.daemons}
            self._targets = tuple(target for target in self._targets if target.daemon in watched)
            self._polls.keep(watched)
            self._measured.keep(watched)
            for counter in (self._server_changes, self._gpu_faults, self._fault_logs):
                for daemon in counter.keys() - watched:
                    del counter[daemon]

    def expect(self, targets: Iterable[tuple[str, str, str]]) -> None:
        """Name the (daemon, gpu uuid, plan) that sweeps are scheduled for: their counters exist from now on at 0."""
        with self._changing():
            self._targets = tuple(sorted({Target(*target) for target in targets}))

    def set_paused(self, paused: bool) -> None:  # noqa: FBT001  # the one thing it sets
        with self._changing():
            self._paused = paused

    def set_stuck(self, daemon: str, gpu_uuid: str, pids: Sequence[int]) -> None:
        """Say which clients of ours are stuck now, as the daemon finds some gone or, after a restart, still there."""
        with self._changing():
            self._measured.attempts.stuck[daemon, gpu_uuid] = tuple(pids)

    def set_fault_log(self, daemon: str, unknown: Reason | None) -> None:
        """Say whether this daemon's server.log is being read (None) or why not; until told, it is not."""
        with self._changing():
            self._fault_logs[daemon] = unknown

    def archive_written(self, at: datetime, total_bytes: int | None) -> None:
        with self._changing():
            self._archive = self._archive.written(at, total_bytes)

    def archive_failed(self, detail: str) -> None:
        with self._changing():
            self._archive = self._archive.failed(detail)

    def archive_measured(self, total_bytes: int | None) -> None:
        """Take the archive's size as it was found, without a write (at the start, after retention)."""
        with self._lock:
            if total_bytes != self._archive.bytes:
                self._archive, self._view = replace(self._archive, bytes=total_bytes), None

    def expect_remote(self) -> None:
        """Say that a remote target is configured: what is known of it is published from now on."""
        with self._changing():
            self._archive = replace(self._archive, remote=self._archive.remote or RemoteHealth())

    def remote_copied(self, at: datetime | None, *, missing: int | None, fault: str | None) -> None:
        """Take how a round of copying went: with a `fault` it is a failure; `missing` is None where it cannot tell.

        `at` is when the target was seen to hold every run; None where nobody looked, which is no success.
        """
        with self._changing():
            before = self._archive.remote or RemoteHealth()
            self._archive = replace(self._archive, remote=before.copied(at, missing=missing, fault=fault))

    def sink_failed(self, sink: str) -> None:
        """Count that `sink` did not take a fact; call with a known sink's name and `record` elsewhere is unharmed."""
        with self._changing():
            self._sink_failures[sink] += 1

    # --- facts ---------------------------------------------------------------------------------

    def record(self, fact: Fact) -> None:
        """Take in a fact that was seen just now; raises `WrongStackError` for one of the other kind of stack."""
        if fact.simulated != self._simulated:
            raise WrongStackError(fact)
        with self._changing():
            match fact:
                case PollSnapshot():
                    self._polls.take(fact, expires=self._monotonic() + self._settings.poll_stale_after)
                case SweepDocument() | InterferenceDocument():
                    target = self._settings.target_of(fact)
                    if target is not None:
                        self._take(target, fact, age=0.0)
                        self._measured.attempts.executed(target, fact)
                case HistoryLook():
                    self._measured.judged(fact)
                case Event():
                    self._take_event(fact)

    def restore(self, documents: Iterable[D], *, now: datetime) -> tuple[D, ...]:
        """Publish what was read from the archive with its own time; gives the documents that were newer than ours.

        For the start, and for what another process wrote. Not counted as outcomes of this process.
        Documents of the other kind of stack, of another host or of no configured daemon are left out.
        """
        taken = []
        with self._changing():
            for document in sorted(documents, key=finished_at):
                target = self._settings.target_of(document)
                ours = document.simulated == self._simulated and document.host == self._host
                if target is not None and ours and self._measured.is_news(target, document):
                    at = finished_at(document)
                    self._take(target, document, age=max(0.0, (now - at).total_seconds()))
                    self._measured.attempts.overtaken(target, at)
                    taken.append(document)
        return tuple(taken)

    def remember(self, events: Iterable[Event]) -> None:
        """Show events of an earlier process (from the journal) on the page; they count for nothing else."""
        with self._changing():
            ours = [event for event in events if event.simulated == self._simulated]
            self._events = deque([*ours, *self._events], maxlen=RECENT_EVENTS)

    # --- what others read ----------------------------------------------------------------------

    def view(self) -> View:
        """Give what is known now: the same object until something changed or went stale."""
        with self._lock:
            self._expire()
            if self._view is None:
                self._version += 1
                self._view = self._build()
            return self._view

    def next_expiry(self) -> float | None:
        """Say when (on the monotonic clock) something goes stale next, for the daemon's timer."""
        with self._lock:
            return min([*self._polls.expiries(), *self._measured.expiries()], default=None)

    def expire(self) -> bool:
        """Take out what went stale; True if that changed the view. `view` does the same by itself."""
        with self._lock:
            return self._expire()

    # --- inside (the lock is held) -------------------------------------------------------------

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock for a change: the next one who asks gets another view."""
        with self._lock:
            self._view = None
            yield

    def _expire(self) -> bool:
        now = self._monotonic()
        changed = any([self._polls.expire(now), self._measured.expire(now)])
        if changed:
            self._view = None
        return changed

    def _take(self, target: Target, document: Measurement, *, age: float) -> None:
        now = self._monotonic()
        self._measured.take(target, document, expires=now + self._settings.stale_after(target.plan) - age, now=now)

    def _take_event(self, event: Event) -> None:
        self._events.append(event)
        daemon = event.daemon or ""
        match event.kind:
            case "server_changed":
                if event.details.get("after") != []:  # one that ended made way for no other yet
                    self._server_changes[daemon] += 1
            case "server_fault":
                # Counted from server.log alone: a state of FAULT seen by a poll is in that log too.
                count = event.details.get("count")
                if isinstance(count, int) and count > 0:
                    self._gpu_faults[daemon] += count
            case "paused" | "resumed":
                self._paused = event.kind == "paused"
            case _:
                self._measured.attempts.hear(Target(daemon, event.gpu_uuid or "", event.plan or "quick"), event)

    def _build(self) -> View:
        polls, measured, attempts = self._polls, self._measured, self._measured.attempts
        return View(
            version=self._version,
            host=self._host,
            simulated=self._simulated,
            mpswatch_version=self._mpswatch_version,
            started_at=self._started_at,
            poll_interval=self._settings.poll_interval,
            sweep_interval=self._settings.sweep_interval,
            context_limit=self._settings.context_limit,
            daemons=tuple(self._settings.daemons),
            targets=tuple(sorted({*self._targets, *measured.targets()})),
            first_poll_finished=polls.first_finished,
            poll=polls.poll,
            poll_unknown=polls.unknown,
            sources=dict(polls.sources),
            sweeps=dict(measured.sweeps.health),
            outcomes=dict(attempts.outcomes),
            refusals=dict(attempts.refusals),
            refused=dict(attempts.refused),
            running=frozenset(attempts.running),
            stuck=dict(attempts.stuck),
            server_changes=dict(self._server_changes),
            gpu_faults=dict(self._gpu_faults),
            fault_logs=dict(self._fault_logs),
            paused=self._paused,
            archive=self._archive,
            sink_failures=dict(self._sink_failures),
            runs=tuple(attempts.runs),
            events=tuple(reversed(self._events)),
            history=measured.standings(),
            interferences=dict(measured.interferences.health),
        )
