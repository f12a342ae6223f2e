"""Where facts go: to the latest view at once, to the archive in its own thread, with the timer for what goes stale."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from mpswatch.daemon.keeper import Keeper, KeepingError
from mpswatch.daemon.own_schedules import intervals
from mpswatch.daemon.parts import Parts
from mpswatch.daemon.said import Said
from mpswatch.daemon.stuck import StuckClients
from mpswatch.documents import Event, EventKind, Fact
from mpswatch.errors import MpswatchError
from mpswatch.latest import Latest, Settings
from mpswatch.record import DURABLE_EVENTS, Record, archiving


class Facts:
    """`record` is for the loop, `record_durably` for the sweep's thread: it returns once a start is on the disk."""

    def __init__(self, parts: Parts, loop: asyncio.AbstractEventLoop, log: Any) -> None:  # noqa: ANN401 - a proxy
        config = parts.config
        self._loop = loop
        self._events = parts.events
        self._log = log
        self._said = Said()
        self._expiry: asyncio.TimerHandle | None = None
        self.latest = Latest(_settings(parts), host=config.host, simulated=parts.simulated)
        self.stuck = StuckClients(self.latest, parts.processes)
        keep = archiving(
            parts.archive,
            parts.journal,
            self.latest,
            interferences=parts.interferences,
            on_retain_failure=self._retaining_failed,
            may_retain=lambda: config.archive.remote.url is None,  # else copying.py does, once all is there
        )
        self.keeper = Keeper(keep, deadline=config.archive.deadline, failed=self._keeping_failed)
        self._soon = Record(
            {"archive": self.keeper.take, "latest": self.latest.record}, latest=self.latest, on_failure=self._failed
        )
        self._durably = Record(
            {"archive": self._keep_durably, "latest": self.latest.record}, latest=self.latest, on_failure=self._failed
        )

    def configure(self, parts: Parts) -> None:
        """Take the settings of a reload, or other daemons."""
        self.latest.configure(_settings(parts))
        self.keeper.deadline = parts.config.archive.deadline

    def record(self, fact: Fact) -> None:
        """Hand `fact` on, without waiting for a disk."""
        self._soon(fact)
        self._arm()

    def event(self, kind: EventKind, message: str, **details: Any) -> None:  # noqa: ANN401 - as Events.event
        """Record something that happened to the daemon itself."""
        self.record(self._events.event(kind, message, **details))

    def record_durably(self, fact: Fact) -> tuple[str, ...]:
        """Hand `fact` on from another thread; names the sinks that did not take it."""
        if isinstance(fact, Event) and fact.kind == "client_stuck":
            self.stuck.note(fact)
        failed = self._durably(fact)
        with contextlib.suppress(RuntimeError):  # the loop has closed: we are leaving
            self._loop.call_soon_threadsafe(self._arm)
        return failed

    def look_after(self) -> None:
        """Once a second: say when the archive hangs, try again what it did not take."""
        late = "late" if self.keeper.late else None
        if self._said.is_new("keeper", late):
            if late:
                self.latest.archive_failed(f"the archive has not answered for {self.keeper.deadline:g} s")
                self._log.error("the archive hangs", remedy="check the file system that archive.directory is on")
            else:
                self._log.info("the archive answers again")
        if not late:
            with contextlib.suppress(KeepingError):
                self.keeper.try_again()

    def _keep_durably(self, fact: Fact) -> None:
        if isinstance(fact, Event) and fact.kind in DURABLE_EVENTS:
            self.keeper.take_and_wait(fact)
        else:
            self.keeper.take(fact)

    def _arm(self) -> None:
        """Set the timer for the next thing that goes stale: until it does, nobody needs to ask."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        at = self.latest.next_expiry()
        if at is not None:
            self._expiry = self._loop.call_later(max(0.0, at - time.monotonic()), self._expired)

    def _expired(self) -> None:
        self._expiry = None
        if self.latest.expire():
            self._log.warning("what was published has gone stale")
        self._arm()

    def _keeping_failed(self, fact: Fact, error: Exception) -> None:
        self.latest.sink_failed("archive")
        self._failed("archive", fact, error)

    def _failed(self, sink: str, _fact: Fact, error: Exception) -> None:
        known = isinstance(error, MpswatchError)
        if self._said.is_new(sink, str(error)):
            remedy = error.remedy if isinstance(error, MpswatchError) else None
            self._log.error(
                "not recorded", sink=sink, detail=str(error), remedy=remedy, exc_info=None if known else error
            )

    def _retaining_failed(self, error: MpswatchError) -> None:
        if self._said.is_new("retention", str(error)):
            self._log.warning("old runs could not be removed", detail=error.detail, remedy=error.remedy)


def _settings(parts: Parts) -> Settings:
    config = parts.config
    return Settings(
        daemons={address.name: str(address.pipe_directory) for address in parts.addresses},
        poll_interval=config.poll.interval,
        sweep_interval=config.sweep.interval if config.sweep.enabled else None,
        plan_intervals=intervals(config),
        context_limit=config.sweep.context_limit,
    )
