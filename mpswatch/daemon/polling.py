"""The poll's way from the trigger to the facts: in a thread of its own, whatever a sweep is doing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from mpswatch.changes import changes, remember
from mpswatch.daemon.fault_logs import FaultLook, faults_of
from mpswatch.daemon.parts import Parts
from mpswatch.daemon.said import Said
from mpswatch.daemon.worker import Worker
from mpswatch.documents import Event, Fact, PollSnapshot
from mpswatch.poll import DaemonAddress


class Looked(NamedTuple):
    """One poll, and the control daemons that were asked."""

    snapshot: PollSnapshot
    logs: FaultLook
    daemons: tuple[DaemonAddress, ...]


class Polling:
    """Polls when triggered. `after` gets each snapshot, the events that tell it from the one before, and the logs;
    before that `adopt` gets the control daemons, where they are looked for and are others than before.
    """

    def __init__(
        self,
        *,
        parts: Callable[[], Parts],
        worker: Worker[Looked],
        may_drop: Callable[[], bool],
        adopt: Callable[[tuple[DaemonAddress, ...]], None],
        record: Callable[[Fact], object],
        after: Callable[[PollSnapshot, Sequence[Event], FaultLook], None],
        log: Any,  # noqa: ANN401 - structlog's loggers are proxies
    ) -> None:
        self.previous: PollSnapshot | None = None
        self._memory: PollSnapshot | None = None
        self._parts = parts
        self._worker = worker
        self._may_drop = may_drop
        self._adopt = adopt
        self._record = record
        self._after = after
        self._log = log
        self._said = Said()

    def trigger(self) -> None:
        """Start a poll, unless the last one is still under way (its sources have deadlines: it will end)."""
        parts = self._parts()
        may_drop = self._may_drop()
        late = not self._worker.offer(lambda: _look(parts, may_drop=may_drop), partial(self._done, parts), self._failed)
        if self._said.is_new("late", "late" if late else None) and late:
            self._log.warning("a poll takes longer than poll.interval", seconds=self._worker.busy_seconds)

    def _failed(self, error: Exception) -> None:
        # Sources answer for themselves; what arrives here is a fault of ours, and the next poll may do better.
        if self._said.is_new("poll", repr(error)):
            self._log.error("the poll failed", exc_info=error)

    def _done(self, asked: Parts, looked: Looked) -> None:
        snapshot, logs = looked.snapshot, looked.logs
        parts = self._parts()
        if parts.poller is asked.poller and parts.addresses != looked.daemons:
            self._adopt(looked.daemons)
        self._said.is_new("poll", None)
        faults = faults_of(logs, self._parts().events)
        logged = {event.daemon for event in faults}
        # a fault that both the log and the state show is one
        seen = [e for e in changes(self._memory, snapshot) if e.kind != "server_fault" or e.daemon not in logged]
        events = [*seen, *faults]
        self.previous, self._memory = snapshot, remember(self._memory, snapshot)
        self._say_sources(snapshot)
        self._record(snapshot)
        for event in events:
            self._log.info(event.message, kind=event.kind, daemon=event.daemon, gpu=event.gpu_uuid)
            self._record(event)
        self._after(snapshot, events, logs)

    def _say_sources(self, snapshot: PollSnapshot) -> None:
        for source in snapshot.sources:
            subject = f"{source.source} {source.daemon}".strip()
            reason = None if source.success else str(source.reason or "source_failed")
            if self._said.is_new(subject, reason):
                if reason is None:
                    self._log.info("source answers again", source=source.source, daemon=source.daemon or None)
                else:
                    self._log.warning(
                        "source does not answer",
                        source=source.source,
                        daemon=source.daemon or None,
                        reason=reason,
                        detail=source.detail,
                    )


def _look(parts: Parts, *, may_drop: bool) -> Looked:
    """In the poll's thread: who is there, and then everybody."""
    daemons = parts.addresses
    if parts.discovering is not None:
        daemons = parts.discovering.look(may_drop=may_drop)
        parts.poller.watch(daemons)
        parts.fault_logs.watch(daemons)
    return Looked(parts.poller.look(), parts.fault_logs.look(), daemons)
