"""The daemon's life: start, turn, reload, stop. One asyncio loop; what may block has threads of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mpswatch import logs
from mpswatch.config import Config
from mpswatch.daemon.client_check import check_client
from mpswatch.daemon.disk import Disk, DiskLook
from mpswatch.daemon.exit import Exit
from mpswatch.daemon.facts import Facts
from mpswatch.daemon.first_sweep import first_sweep_in
from mpswatch.daemon.hold import hold
from mpswatch.daemon.parts import make_parts
from mpswatch.daemon.polling import Polling
from mpswatch.daemon.reload import keep_what_needs_a_restart
from mpswatch.daemon.restore import Restored, newest_fault, restore
from mpswatch.daemon.said import Said
from mpswatch.daemon.schedule import Schedule
from mpswatch.daemon.serving import Serving
from mpswatch.daemon.sweeping import Sweeping
from mpswatch.daemon.sweeps import Outcome
from mpswatch.daemon.systemd import Notifier
from mpswatch.daemon.targets import targets
from mpswatch.daemon.verdict import verdict
from mpswatch.daemon.worker import Worker
from mpswatch.documents import Event, PollSnapshot
from mpswatch.errors import MpswatchError
from mpswatch.sweep.permit import Refusal
from mpswatch.sweep.ports import Watcher

TICK = 1.0
FROZEN = 10.0
"""Seconds without a turn of the loop after which it does not count as alive."""
POLL_HANGS = 120.0
"""Seconds after which a poll, whose every source has a deadline, does not count as alive either."""
DRAIN_GRACE = 5.0
"""Seconds beyond the client's own drain time that a stop waits for the sweep's thread."""
WEB_GRACE = 3.0


class Service:
    """The daemon for one stack. `reread` gives the configuration anew; `first_sweep_at_once` is for the demo."""

    def __init__(
        self,
        config: Config,
        sockets: Sequence[socket.socket],
        *,
        reread: Callable[[], Config],
        simulated: bool,
        work_directory: Path,
        notifier: Notifier,
        first_sweep_at_once: bool = False,
        progress: Watcher = lambda _step: None,
        after_sweep: Callable[[Sequence[Outcome]], None] = lambda _outcomes: None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._log = logs.get_logger()
        self._parts = make_parts(config, simulated=simulated)
        self._reread = reread
        self._notifier = notifier
        self._first_sweep_at_once = first_sweep_at_once
        self._after_sweep = after_sweep
        self._facts = Facts(self._parts, self._loop, self._log)
        self._said = Said()
        self._paused = False
        self._restored: Restored | None = None
        self._disk: Disk | None = None
        self._faults: dict[str, float] = {}
        self._client: Refusal | str | None = None
        self._verdict, self._good = "not looked yet", False
        self._stopping: asyncio.Event = asyncio.Event()
        self._turned = self._started = time.monotonic()
        self._poll_worker: Worker[PollSnapshot] = Worker("poll", self._loop)
        self._polling = Polling(
            parts=lambda: self._parts,
            worker=self._poll_worker,
            record=self._facts.record,
            after=self._polled,
            log=self._log,
        )
        self._sweeping = Sweeping(
            parts=lambda: self._parts,
            snapshot=lambda: self._polling.previous,
            paused=lambda: self._paused,
            worker=Worker("sweep", self._loop),
            record=self._facts.record,
            record_durably=self._facts.record_durably,
            last_fault_age=self._last_fault_age,
            again=lambda seconds: self._schedule.at_least_in("sweep", seconds),
            after=after_sweep,
            progress=progress,
            work_directory=work_directory,
            log=self._log,
        )
        self._schedule = Schedule(poll=self._polling.trigger, sweep=lambda: self._sweeping.attempt("schedule"))
        self._serving = Serving(
            config,
            sockets,
            latest=self._facts.latest,
            healthy=self.healthy,
            verdict=lambda: self._verdict,
            log=self._log,
        )

    # --- start and turn

    async def run(self) -> Exit:
        """Serve until a signal says stop."""
        self._take_signals()
        self._serving.start()
        config = self._parts.config
        self._facts.keeper.do(self._restore)  # first: it makes the directories that the first event goes to
        self._record_event("started", f"mpswatch started (pid {os.getpid()})")
        self._schedule.start()
        self._schedule.every("poll", config.poll.interval, first_in=0.0)
        threading_check = Worker[Refusal | str]("client check", self._loop)
        threading_check.offer(
            lambda: check_client(config, simulated=self._parts.simulated), self._client_checked, self._check_failed
        )
        self._notifier.ready("watching")
        tick = asyncio.create_task(self._turn())
        await self._stopping.wait()
        await self._stop()
        tick.cancel()
        return Exit.OK

    def healthy(self) -> bool:
        """Whether the loop turns and polls come back: what `/-/healthy` and systemd's watchdog are told."""
        busy = self._poll_worker.busy_seconds
        return time.monotonic() - self._turned < FROZEN and (busy is None or busy < POLL_HANGS)

    async def _turn(self) -> None:
        watchdog = self._notifier.watchdog
        pause = min(TICK, watchdog / 3) if watchdog is not None else TICK
        while True:
            self._turned = time.monotonic()
            if self.healthy():
                self._notifier.alive()
            self._facts.look_after()
            step = self._schedule.follow_the_clock()
            if step:
                self._log.warning("the clock was stepped", seconds=round(step, 3))
            await asyncio.sleep(pause)

    # --- what comes back from the threads

    def _restore(self) -> None:
        """In the keeper's thread."""
        restored = restore(self._parts.archive, self._parts.journal)
        self._loop.call_soon_threadsafe(self._take_restored, restored)

    def _take_restored(self, restored: Restored) -> None:
        self._restored, self._disk = restored, Disk(self._parts.archive, restored.newest_run)
        latest, now = self._facts.latest, datetime.now(UTC)
        for fault in restored.faults:
            self._log.warning("the archive", detail=fault.detail, remedy=fault.remedy)
        latest.restore(restored.runs, now=now)
        latest.remember(restored.events)
        latest.archive_measured(restored.total_bytes)
        for address in self._parts.addresses:
            at = newest_fault(restored.events, address.name)
            if at is not None:
                age = max(0.0, (now - at).total_seconds())
                self._faults.setdefault(address.name, time.monotonic() - age)
        self._set_paused(paused=restored.paused, said=False)
        self._schedule_first_sweep()

    def _schedule_first_sweep(self) -> None:
        """Once both the first poll and what earlier processes left are known."""
        config = self._parts.config
        if self._restored is None or self._polling.previous is None:
            return
        if not config.sweep.enabled:
            self._schedule.off("sweep")
            return
        first = first_sweep_in(
            interval=config.sweep.interval,
            newest_start=self._restored.newest_start,
            known=self._restored.known,
            now=datetime.now(UTC),
        )
        if self._first_sweep_at_once:
            first = 0.0
        self._schedule.every("sweep", config.sweep.interval, first_in=first, jitter=config.sweep.jitter)

    def _client_checked(self, said: Refusal | str) -> None:
        self._client = said
        self._say_verdict()

    def _check_failed(self, error: Exception) -> None:
        self._log.error("the client's interpreter could not be asked", exc_info=error)

    def _polled(self, snapshot: PollSnapshot, events: Sequence[Event]) -> None:
        now = time.monotonic()
        for event in events:
            if event.kind == "server_fault" and event.daemon is not None:
                self._faults[event.daemon] = now
        plan = self._parts.plan.name
        self._facts.latest.expect([(target.daemon, target.gpu_uuid, plan) for target in targets(snapshot)])
        if self._schedule.due_in("sweep") is None:
            self._schedule_first_sweep()
        self._say_verdict()
        try:
            self._facts.keeper.do(self._look_at_disk)
        except MpswatchError as error:
            self._log.debug("the archive is not looked at", detail=error.detail)

    def _look_at_disk(self) -> None:
        """In the keeper's thread: has somebody paused us, has another process swept?"""
        if self._disk is not None:
            self._loop.call_soon_threadsafe(self._seen_on_disk, self._disk.look())

    def _seen_on_disk(self, seen: DiskLook) -> None:
        self._set_paused(paused=seen.paused, said=True)
        taken = self._facts.latest.restore(seen.runs, now=datetime.now(UTC)) if seen.runs else 0
        if taken:
            self._log.info("another process has swept", runs=taken)

    # --- smaller things

    def _set_paused(self, *, paused: bool, said: bool) -> None:
        if paused == self._paused:
            return
        self._paused = paused
        self._facts.latest.set_paused(paused)
        if said:
            self._record_event("paused" if paused else "resumed", "sweeps are paused" if paused else "sweeps run again")
            self._log.info("sweeps are paused" if paused else "sweeps run again")
        self._say_verdict()

    def _say_verdict(self) -> None:
        snapshot = self._polling.previous
        if snapshot is None or self._client is None:
            return
        sweep = self._parts.config.sweep
        said = verdict(
            self._parts,
            snapshot,
            held=hold(sweep, paused=self._paused, asked_for=False, now=datetime.now(UTC)),
            client=self._client if isinstance(self._client, Refusal) else None,
            last_fault_age=self._last_fault_age,
        )
        self._verdict = str(said)
        if said.good and not self._good and self._sweeping.refused:
            self._schedule.at_least_in("sweep", 0.0)  # what refused it has passed: no need to wait any longer
        self._good = said.good
        reason = str(said.refusals[0][1].reason) if said.refusals else "good"
        if self._said.is_new("verdict", reason):
            (self._log.info if said.good else self._log.warning)(str(said))
            self._notifier.status(str(said))

    def _last_fault_age(self, daemon: str) -> float | None:
        at = self._faults.get(daemon)
        return None if at is None else time.monotonic() - at

    def _record_event(self, kind: Any, message: str, **details: Any) -> None:  # noqa: ANN401 - as Events.event
        self._facts.record(self._parts.events.event(kind, message, **details))

    # --- signals, reload, stop

    def _take_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._asked_to_stop, signal.Signals(number).name)
        self._loop.add_signal_handler(signal.SIGHUP, self._hung_up)
        self._loop.add_signal_handler(signal.SIGUSR1, self._sweeping.attempt, "signal")
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    def _asked_to_stop(self, name: str) -> None:
        if self._stopping.is_set():
            self._log.warning("leaving at once; a client that measures drains and leaves by itself")
            logs.flush(0.5)
            os._exit(Exit.LEFT_AT_ONCE)
        self._log.info("stopping", signal=name)
        self._stopping.set()

    def _hung_up(self) -> None:
        if _has_terminal():
            self._asked_to_stop("SIGHUP")
        else:
            self._reload()

    def _reload(self) -> None:
        self._notifier.reloading()
        try:
            wanted = self._reread()
            config, left = keep_what_needs_a_restart(self._parts.config, wanted)
        except MpswatchError as error:
            self._log.error("the new configuration is not taken, the old one stays", detail=error.detail)
            self._record_event("configuration_rejected", error.detail[:2000], reason=error.reason)
        else:
            self._take_config(config)
            self._log.info("configuration reloaded", needs_restart=", ".join(left) or None)
            self._record_event("configuration_reloaded", "configuration reloaded", needs_restart=list(left))
        self._notifier.ready("watching")

    def _take_config(self, config: Config) -> None:
        before, self._parts = self._parts.config, make_parts(config, simulated=self._parts.simulated)
        logs.set_up(config.log.level, config.log.format)
        self._facts.configure(config)
        if config.poll != before.poll:
            self._schedule.every("poll", config.poll.interval, first_in=0.0)
        if config.sweep != before.sweep:
            self._schedule.off("sweep")
            self._first_sweep_at_once = False
            self._schedule_first_sweep()
        self._polling.trigger()

    async def _stop(self) -> None:
        """No new jobs, lifelines closed, clients gone or drain time over, archive flushed, web last."""
        drain = self._parts.plan.drain_deadline + DRAIN_GRACE
        self._notifier.stopping("a measuring client drains" if self._sweeping.running else "stopping")
        self._notifier.extend(drain + self._parts.config.archive.deadline + WEB_GRACE)
        self._schedule.stop()
        self._sweeping.stop()
        await _until(lambda: not self._sweeping.running, drain)
        if self._sweeping.running:
            self._log.warning("the measuring client has not left yet: it drains and leaves by itself")
        self._record_event("stopped", "mpswatch stopped")
        if not await _until(lambda: self._facts.keeper.flush(0.0), self._parts.config.archive.deadline):
            self._log.error("the archive hangs: what waited for it is lost")
        await self._serving.stop(WEB_GRACE)


async def _until(what: Callable[[], bool], deadline: float) -> bool:
    """Wait up to `deadline` seconds for something that other threads bring about; False when it did not come."""
    end = time.monotonic() + deadline
    while not what():
        if time.monotonic() >= end:
            return False
        await asyncio.sleep(0.01)
    return True


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
