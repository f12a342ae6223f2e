"""The only junction: a fact goes to every sink, and a sink that fails stops none of the others.

For the daemon: `Record({"archive": archiving(archive, journal, latest), "latest": latest.record}, latest=latest,
on_failure=…)`; then `record(fact)` from any thread. It never raises, and returns the sinks that failed, so that a
sweep whose `sweep_started` could not be made durable can be held back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Protocol

from mpswatch.documents import Event, Fact, HistoryLook, InterferenceDocument, PollSnapshot, SweepDocument
from mpswatch.errors import MpswatchError


class Runs(Protocol):
    """What keeps runs (archive.Archive): named here by what is asked of it, because this room imports no other."""

    def write(self, document: SweepDocument) -> object: ...
    def retain(self, now: datetime) -> object: ...
    def usage(self) -> int: ...


class Matrices(Protocol):
    """What keeps interference documents (archive.interference.Interferences)."""

    def write(self, document: InterferenceDocument) -> object: ...


class Lines(Protocol):
    """What keeps events (journal.Journal)."""

    def append(self, event: Event, *, durable: bool) -> None: ...


class Health(Protocol):
    """What is told how keeping went (latest.Latest)."""

    def sink_failed(self, sink: str) -> None: ...
    def archive_written(self, at: datetime, total_bytes: int | None) -> None: ...
    def archive_failed(self, detail: str) -> None: ...


Sink = Callable[[Fact], None]

DURABLE_EVENTS = frozenset({"sweep_started", "client_stuck", "paused", "resumed"})
"""Events that a start after a crash reads: they are on the disk before anything follows from them."""


class Record:
    """Hands each fact to every sink in order. `on_failure(sink, fact, error)` is for the log."""

    def __init__(
        self,
        sinks: Mapping[str, Sink],
        *,
        latest: Health,
        on_failure: Callable[[str, Fact, Exception], None] = lambda sink, fact, error: None,  # noqa: ARG005  # a quiet default
    ) -> None:
        self._sinks = dict(sinks)
        self._latest = latest
        self._on_failure = on_failure

    @property
    def sinks(self) -> tuple[str, ...]:
        return tuple(self._sinks)

    def __call__(self, fact: Fact) -> tuple[str, ...]:
        """Hand over `fact`; returns the names of the sinks that failed."""
        failed = []
        for name, sink in self._sinks.items():
            try:
                sink(fact)
            except Exception as error:  # noqa: BLE001  # whatever a sink raises must not stop the next one
                failed.append(name)
                self._latest.sink_failed(name)
                self._on_failure(name, fact, error)
        return tuple(failed)


def archiving(
    archive: Runs,
    journal: Lines,
    latest: Health,
    *,
    interferences: Matrices | None = None,
    on_retain_failure: Callable[[MpswatchError], None] = lambda error: None,  # noqa: ARG005  # a quiet default
    may_retain: Callable[[], bool] = lambda: True,
) -> Sink:
    """Make the sink that keeps runs as files and events as journal lines, and tells `latest` how that went.

    Where `may_retain` says no, nothing old is removed after a write: with a remote target that is done once it has
    every run, so that one which is down for long loses none.
    """

    def sink(fact: Fact) -> None:
        match fact:
            case PollSnapshot() | HistoryLook():
                return
            case Event():
                journal.append(fact, durable=fact.kind in DURABLE_EVENTS)
            case InterferenceDocument():
                if interferences is not None:
                    try:
                        interferences.write(fact)
                    except MpswatchError as error:
                        latest.archive_failed(error.detail)
                        raise
            case SweepDocument():
                try:
                    archive.write(fact)
                except MpswatchError as error:
                    latest.archive_failed(error.detail)
                    raise
                now = datetime.now(UTC)
                total = None
                try:
                    if may_retain():
                        archive.retain(now)
                    total = archive.usage()
                except MpswatchError as error:
                    on_retain_failure(error)
                latest.archive_written(now, total)

    return sink
