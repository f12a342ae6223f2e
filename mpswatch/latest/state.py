"""The newest of everything, its age and its health: what goes stale is taken out, by a clock that never steps."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from mpswatch import __version__
from mpswatch.documents import (
    Event,
    Fact,
    HistoryLook,
    InterferenceDocument,
    MpsFacts,
    PollSnapshot,
    Reason,
    SweepDocument,
)
from mpswatch.errors import MpswatchError
from mpswatch.latest.view import (
    ArchiveHealth,
    InterferenceHealth,
    Outcome,
    RemoteHealth,
    Run,
    SourceHealth,
    SweepHealth,
    Target,
    View,
)

RECENT_RUNS = 20
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

    `daemons` maps each configured name to its pipe directory. Ages of what this process saw itself are
    measured with `monotonic`; only a run read back from the archive has a wall-clock age, because nothing
    better exists then. `poll_stale_after` and `sweep_stale_after` are seconds (three intervals).
    """

    def __init__(
        self,
        *,
        host: str,
        simulated: bool,
        daemons: Mapping[str, str],
        poll_interval: float,
        sweep_interval: float | None,
        poll_stale_after: float | None = None,
        sweep_stale_after: float | None = None,
        plan_intervals: Mapping[str, float] | None = None,
        context_limit: int | None = None,
        started_at: datetime | None = None,
        version: str = __version__,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = threading.Lock()
        self._monotonic = monotonic
        self._host = host
        self._simulated = simulated
        self._mpswatch_version = version
        self._started_at = started_at or datetime.now(UTC)
        self._targets: tuple[Target, ...] = ()
        self._poll: PollSnapshot | None = None
        self._poll_expires: float | None = None
        self._polled = False
        self._sources: dict[tuple[str, str], SourceHealth] = {}
        self._sweeps: dict[Target, SweepHealth] = {}
        self._sweep_expires: dict[Target, float] = {}
        self._outcomes: Counter[tuple[Target, Outcome]] = Counter()
        self._refusals: Counter[tuple[Target, Reason]] = Counter()
        self._refused: dict[Target, Event] = {}
        self._running: set[tuple[str, str]] = set()
        self._stuck: dict[tuple[str, str], tuple[int, ...]] = {}
        self._server_changes: Counter[str] = Counter()
        self._gpu_faults: Counter[str] = Counter()
        self._fault_logs: dict[str, Reason | None] = {}
        self._paused = False
        self._archive = ArchiveHealth()
        self._sink_failures: Counter[str] = Counter()
        self._runs: deque[Run] = deque(maxlen=RECENT_RUNS)
        self._history: deque[HistoryLook] = deque(maxlen=RECENT_RUNS)
        self._events: deque[Event] = deque(maxlen=RECENT_EVENTS)
        self._interferences: dict[tuple[str, str], InterferenceHealth] = {}
        self._interference_expires: dict[tuple[str, str], float] = {}
        self._view: View | None = None
        self._version = 0
        self.configure(
            daemons=daemons,
            poll_interval=poll_interval,
            sweep_interval=sweep_interval,
            poll_stale_after=poll_stale_after,
            sweep_stale_after=sweep_stale_after,
            plan_intervals=plan_intervals,
            context_limit=context_limit,
        )

    # --- what the daemon tells -----------------------------------------------------------------

    def configure(
        self,
        *,
        daemons: Mapping[str, str],
        poll_interval: float,
        sweep_interval: float | None,
        poll_stale_after: float | None = None,
        sweep_stale_after: float | None = None,
        plan_intervals: Mapping[str, float] | None = None,
        context_limit: int | None = None,
    ) -> None:
        """Take new settings (at the start and at a reload). None for an age means three intervals.

        `plan_intervals` are those of plans on a schedule of their own (thorough, interference). Without a sweep
        interval (scheduled sweeps are off) a run goes stale after three hours. `context_limit` is what a server holds
        where nobody tells.
        """
        with self._lock:
            self._daemons = dict(daemons)
            self._poll_interval = poll_interval
            self._sweep_interval = sweep_interval
            self._poll_stale_after = poll_stale_after or 3 * poll_interval
            self._sweep_stale_after = sweep_stale_after or 3 * (sweep_interval or 3600.0)
            self._context_limit = context_limit
            self._plan_stale_after = {plan: 3 * interval for plan, interval in (plan_intervals or {}).items()}
            self._view = None

    def expect(self, targets: Iterable[tuple[str, str, str]]) -> None:
        """Name the (daemon, gpu uuid, plan) that sweeps are scheduled for: their counters exist from now on at 0."""
        with self._lock:
            self._targets = tuple(sorted({Target(*target) for target in targets}))
            self._view = None

    def set_paused(self, paused: bool) -> None:  # noqa: FBT001  # the one thing it sets
        with self._lock:
            self._paused = paused
            self._view = None

    def set_stuck(self, daemon: str, gpu_uuid: str, pids: Sequence[int]) -> None:
        """Say which clients of ours are stuck now, as the daemon finds some gone or, after a restart, still there."""
        with self._lock:
            self._stuck[daemon, gpu_uuid] = tuple(pids)
            self._view = None

    def set_fault_log(self, daemon: str, unknown: Reason | None) -> None:
        """Say whether this daemon's server.log is being read (None) or why not; until told, it is not."""
        with self._lock:
            self._fault_logs[daemon] = unknown
            self._view = None

    def archive_written(self, at: datetime, total_bytes: int | None) -> None:
        with self._lock:
            self._archive = replace(
                self._archive,
                writes=self._archive.writes + 1,
                bytes=total_bytes if total_bytes is not None else self._archive.bytes,
                last_success_at=at,
                fault=None,
            )
            self._view = None

    def archive_failed(self, detail: str) -> None:
        with self._lock:
            self._archive = replace(self._archive, failures=self._archive.failures + 1, fault=detail)
            self._view = None

    def archive_measured(self, total_bytes: int | None) -> None:
        """Take the archive's size as it was found, without a write (at the start, after retention)."""
        with self._lock:
            if total_bytes != self._archive.bytes:
                self._archive = replace(self._archive, bytes=total_bytes)
                self._view = None

    def expect_remote(self) -> None:
        """Say that a remote target is configured: what is known of it is published from now on."""
        with self._lock:
            self._archive = replace(self._archive, remote=self._archive.remote or RemoteHealth())
            self._view = None

    def remote_copied(self, at: datetime | None, *, missing: int | None, fault: str | None) -> None:
        """Take how a round of copying went: with a `fault` it is a failure; `missing` is None where it cannot tell.

        `at` is when the target was seen to hold every run; None where nobody looked, which is no success.
        """
        with self._lock:
            before = self._archive.remote or RemoteHealth()
            remote = RemoteHealth(
                missing=missing,
                failures=before.failures + (fault is not None),
                last_success_at=at if at is not None and fault is None else before.last_success_at,
                fault=fault,
            )
            self._archive = replace(self._archive, remote=remote)
            self._view = None

    def sink_failed(self, sink: str) -> None:
        """Count that `sink` did not take a fact; call with a known sink's name and `record` elsewhere is unharmed."""
        with self._lock:
            self._sink_failures[sink] += 1
            self._view = None

    # --- facts ---------------------------------------------------------------------------------

    def record(self, fact: Fact) -> None:
        """Take in a fact that was seen just now; raises `WrongStackError` for one of the other kind of stack."""
        if fact.simulated != self._simulated:
            raise WrongStackError(fact)
        with self._lock:
            match fact:
                case PollSnapshot():
                    self._take_poll(fact)
                case SweepDocument():
                    target = self._target_of(fact)
                    if target is not None:
                        self._take_sweep(target, fact, age=0.0)
                        self._outcomes[target, outcome(fact)] += 1
                        self._attempted(target)
                        self._running.discard(target[:2])
                        self._stuck[target[:2]] = fact.stuck_clients
                case HistoryLook():
                    self._history.append(fact)
                case InterferenceDocument():
                    self._take_interference(fact, age=0.0)
                case Event():
                    self._take_event(fact)
            self._view = None

    def restore(self, documents: Iterable[SweepDocument], *, now: datetime) -> int:
        """Publish runs read from the archive with their own time; returns how many were newer than what we had.

        For the start, and for runs that another process wrote. Not counted as outcomes of this process.
        Documents of the other kind of stack, of another host or of no configured daemon are left out.
        """
        taken = 0
        with self._lock:
            for document in sorted(documents, key=finished_at):
                target = self._target_of(document)
                if document.simulated != self._simulated or document.host != self._host or target is None:
                    continue
                known = self._sweeps.get(target)
                if known is not None and known.finished_at >= finished_at(document):
                    continue
                age = max(0.0, (now - finished_at(document)).total_seconds())
                self._take_sweep(target, document, age=age)
                for refused in (target, target._replace(gpu_uuid="")):
                    if refused in self._refused and self._refused[refused].at < finished_at(document):
                        del self._refused[refused]
                taken += 1
            if taken:
                self._view = None
        return taken

    def restore_interferences(self, documents: Iterable[InterferenceDocument], *, now: datetime) -> None:
        """Publish interference read from the archive with its own time, as `restore` does runs."""
        with self._lock:
            for document in documents:
                if document.simulated == self._simulated and document.host == self._host:
                    age = max(0.0, (now - document.finished_at).total_seconds())
                    self._take_interference(document, age=age)
            self._view = None

    def remember(self, events: Iterable[Event]) -> None:
        """Show events of an earlier process (from the journal) on the page; they count for nothing else."""
        with self._lock:
            ours = [event for event in events if event.simulated == self._simulated]
            self._events = deque([*ours, *self._events], maxlen=RECENT_EVENTS)
            self._view = None

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
            times = [*self._sweep_expires.values(), *self._interference_expires.values()]
            if self._poll_expires is not None:
                times.append(self._poll_expires)
            return min(times, default=None)

    def expire(self) -> bool:
        """Take out what went stale; True if that changed the view. `view` does the same by itself."""
        with self._lock:
            return self._expire()

    # --- inside (the lock is held) -------------------------------------------------------------

    def _expire(self) -> bool:
        now = self._monotonic()
        changed = False
        if self._poll_expires is not None and self._poll_expires <= now:
            self._poll = self._poll_expires = None
            self._sources = {
                key: replace(source, success=None, duration_seconds=None, reason=Reason.STALE, detail=None)
                for key, source in self._sources.items()
            }
            changed = True
        for target in [target for target, at in self._sweep_expires.items() if at <= now]:
            del self._sweep_expires[target]
            self._sweeps[target] = replace(self._sweeps[target], document=None)
            changed = True
        for key in [key for key, at in self._interference_expires.items() if at <= now]:
            del self._interference_expires[key]
            self._interferences[key] = replace(self._interferences[key], document=None)
            changed = True
        if changed:
            self._view = None
        return changed

    def _take_poll(self, poll: PollSnapshot) -> None:
        self._poll = poll
        self._poll_expires = self._monotonic() + self._poll_stale_after
        self._polled = True
        before = self._sources
        self._sources = {}
        for look in poll.sources:
            key = (look.source, look.daemon or "")
            last = before[key].last_success_at if key in before else None
            self._sources[key] = SourceHealth(
                success=look.success,
                duration_seconds=look.duration_seconds,
                reason=look.reason,
                detail=look.detail,
                last_success_at=poll.finished_at if look.success else last,
            )

    def _take_sweep(self, target: Target, document: SweepDocument, *, age: float) -> None:
        ended = outcome(document)
        known = self._sweeps.get(target)
        stale_after = self._plan_stale_after.get(target.plan, self._sweep_stale_after)
        fresh = age < stale_after
        self._sweeps[target] = SweepHealth(
            document=document if fresh else None,
            caps=tuple(cell.cap for cell in document.cells),
            outcome=ended,
            finished_at=finished_at(document),
            last_success_at=finished_at(document)
            if ended == "complete"
            else (known.last_success_at if known is not None else None),
        )
        self._sweep_expires.pop(target, None)
        if fresh:
            self._sweep_expires[target] = self._monotonic() + stale_after - age
        run = Run(finished_at(document), target, ended, None, document.partial_run_note, document.run_id)
        self._runs.appendleft(run)

    def _take_interference(self, document: InterferenceDocument, *, age: float) -> None:
        name = self._daemon_of(document.pipe_directory, document.mps)
        if name is None:
            return
        key = (name, document.gpu.uuid if document.gpu is not None else "")
        self._running.discard(key)
        self._stuck[key] = document.stuck_clients
        left = self._plan_stale_after.get("interference", self._sweep_stale_after) - age
        self._interferences[key] = InterferenceHealth(document if left > 0 else None, document.finished_at)
        self._interference_expires.pop(key, None)
        if left > 0:
            self._interference_expires[key] = self._monotonic() + left

    def _take_event(self, event: Event) -> None:
        self._events.append(event)
        daemon, uuid = event.daemon or "", event.gpu_uuid or ""
        target = Target(daemon, uuid, event.plan or "quick")
        match event.kind:
            case "server_changed":
                self._server_changes[daemon] += 1
            case "server_fault":
                # Counted from server.log alone: a state of FAULT seen by a poll is in that log too.
                count = event.details.get("count")
                if isinstance(count, int) and count > 0:
                    self._gpu_faults[daemon] += count
            case "sweep_started":
                self._running.add((daemon, uuid))
            case "sweep_finished":
                self._running.discard((daemon, uuid))
            case "sweep_refused" | "sweep_failed":
                reason = event.reason or Reason.INTERNAL_ERROR
                ended: Outcome = "refused" if event.kind == "sweep_refused" else "failed"
                self._attempted(target)
                self._running.discard((daemon, uuid))
                self._outcomes[target, ended] += 1
                if ended == "refused":
                    self._refusals[target, reason] += 1
                    self._refused[target] = event
                self._runs.appendleft(Run(event.at, target, ended, reason, event.message, event.run_id))
            case "client_stuck":
                pids = event.details.get("pids", ())
                self._stuck[daemon, uuid] = tuple(pid for pid in pids if isinstance(pid, int))
            case "paused" | "resumed":
                self._paused = event.kind == "paused"
            case _:
                pass

    def _attempted(self, target: Target) -> None:
        """Forget how the last attempt was refused, also the one that was made while the GPU was unknown."""
        self._refused.pop(target, None)
        self._refused.pop(target._replace(gpu_uuid=""), None)

    def _target_of(self, document: SweepDocument) -> Target | None:
        """Name the configured daemon a run belongs to: by pipe directory, else by name; None if it is none of ours."""
        name = self._daemon_of(document.pipe_directory, document.mps)
        if name is None:
            return None
        return Target(name, document.gpu.uuid if document.gpu is not None else "", document.protocol.plan)

    def _daemon_of(self, pipe_directory: str, mps: MpsFacts | None) -> str | None:
        by_directory = {directory: name for name, directory in self._daemons.items()}
        name = by_directory.get(pipe_directory)
        return mps.daemon if name is None and mps is not None and mps.daemon in self._daemons else name

    def _standings(self) -> Iterator[tuple[Target, HistoryLook]]:
        """Pair each run that is published with what was found of its history; nothing for another run's."""
        for target, health in self._sweeps.items():
            for look in self._history:
                if health.document is not None and look.run_id and look.run_id == health.document.run_id:
                    yield target, look

    def _build(self) -> View:
        unknown = None
        if self._poll is None:
            unknown = Reason.STALE if self._polled else Reason.NO_POLL_YET
        seen = {*self._targets, *self._sweeps, *self._refused, *(target for target, _ in self._outcomes)}
        return View(
            version=self._version,
            host=self._host,
            simulated=self._simulated,
            mpswatch_version=self._mpswatch_version,
            started_at=self._started_at,
            poll_interval=self._poll_interval,
            sweep_interval=self._sweep_interval,
            context_limit=self._context_limit,
            daemons=tuple(self._daemons),
            targets=tuple(sorted(seen)),
            first_poll_finished=self._polled,
            poll=self._poll,
            poll_unknown=unknown,
            sources=dict(self._sources),
            sweeps=dict(self._sweeps),
            outcomes=dict(self._outcomes),
            refusals=dict(self._refusals),
            refused=dict(self._refused),
            running=frozenset(self._running),
            stuck=dict(self._stuck),
            server_changes=dict(self._server_changes),
            gpu_faults=dict(self._gpu_faults),
            fault_logs=dict(self._fault_logs),
            paused=self._paused,
            archive=self._archive,
            sink_failures=dict(self._sink_failures),
            runs=tuple(self._runs),
            events=tuple(reversed(self._events)),
            history=dict(self._standings()),
            interferences=dict(self._interferences),
        )


def outcome(document: SweepDocument) -> Outcome:
    """Say how an executed run ended: `failed` when not one cell was measured."""
    if document.complete_sweep:
        return "complete"
    return "failed" if all(cell.state == "unknown" for cell in document.cells) else "partial"


def finished_at(document: SweepDocument) -> datetime:
    """Give a run's own time: when it finished, else (a reference document) when it was recorded."""
    return document.finished_at or document.recorded_at
