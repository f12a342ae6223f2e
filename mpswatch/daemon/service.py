"""The daemon's life: start, turn, reload, stop. One asyncio loop; what may block has threads of its own."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from mpswatch import logs
from mpswatch.config import Config
from mpswatch.daemon import memory
from mpswatch.daemon.client_check import check_client
from mpswatch.daemon.copying import Copying
from mpswatch.daemon.events import Target
from mpswatch.daemon.exit import Exit
from mpswatch.daemon.facts import Facts
from mpswatch.daemon.fault_logs import FaultLook
from mpswatch.daemon.first_sweep import first_sweep_in
from mpswatch.daemon.judging import Judging
from mpswatch.daemon.outlook import Outlook
from mpswatch.daemon.own_schedules import OwnSchedules, intervals
from mpswatch.daemon.parts import make_parts, remake_parts
from mpswatch.daemon.past import Past
from mpswatch.daemon.polling import Looked, Polling
from mpswatch.daemon.reload import Reloading
from mpswatch.daemon.runs import find_interference, find_run
from mpswatch.daemon.schedule import Schedule
from mpswatch.daemon.serving import Serving
from mpswatch.daemon.signals import Signals
from mpswatch.daemon.sweeping import Sweeping
from mpswatch.daemon.sweeps import Outcome
from mpswatch.daemon.systemd import Notifier
from mpswatch.daemon.targets import targets
from mpswatch.daemon.worker import Worker
from mpswatch.documents import Event, PollSnapshot
from mpswatch.poll import DaemonAddress
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
COPY_JITTER = 0.1
"""Share of its interval that rounds of copying are spread over, so that a fleet does not reach its target in step."""


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
        self._notifier = notifier
        self._first_sweep_at_once = first_sweep_at_once
        self._facts = Facts(self._parts, self._loop, self._log)
        self._judging = Judging(
            archive=lambda: self._parts.archive,
            journal=lambda: self._parts.journal,
            worker=Worker("history", self._loop),
            record=self._facts.record,
            log=self._log,
        )
        self._past = Past(
            facts=self._facts, loop=self._loop, changed=self._consider, found=self._judging.judge, log=self._log
        )
        self._outlook = Outlook(notifier=notifier, last_fault_age=self._past.last_fault_age, log=self._log)
        self._after_sweep = after_sweep
        self._work_directory = work_directory
        self._turned = time.monotonic()
        self._settled = False
        self._poll_worker: Worker[Looked] = Worker("poll", self._loop)
        self._client_worker: Worker[Refusal | str] = Worker("client check", self._loop)
        self._polling = Polling(
            parts=lambda: self._parts,
            worker=self._poll_worker,
            may_drop=lambda: not self._sweeping.running,
            adopt=self._adopt,
            record=self._facts.record,
            after=self._polled,
            log=self._log,
        )
        self._sweeping = Sweeping(
            parts=lambda: self._parts,
            snapshot=lambda: self._polling.previous,
            paused=lambda: self._past.paused,
            worker=Worker("sweep", self._loop),
            record=self._facts.record,
            record_durably=self._facts.record_durably,
            last_fault_age=self._past.last_fault_age,
            again=lambda plan, seconds: self._schedule.at_least_in("sweep" if plan == "quick" else plan, seconds),
            after=self._swept,
            progress=progress,
            work_directory=work_directory,
            log=self._log,
        )
        self._reloading = Reloading(
            reread=reread,
            running=lambda: self._parts.config,
            take=self._take_config,
            worker=Worker("reload", self._loop),
            facts=self._facts,
            notifier=notifier,
            log=self._log,
        )
        self._copying = Copying(
            config=config,
            archive=self._parts.archive,
            worker=Worker("copy", self._loop),
            facts=self._facts,
            log=self._log,
        )
        self._schedule = Schedule(
            poll=self._polling.trigger,
            sweep=lambda: self._sweeping.attempt("schedule"),
            thorough=lambda: self._sweeping.attempt("schedule", "thorough"),
            interference=lambda: self._sweeping.attempt("schedule", "interference"),
            copy=self._copying.trigger,
        )
        self._own_schedules = OwnSchedules(self._schedule, lambda: self._sweeping.newest_starts)
        self._serving = Serving(
            config,
            sockets,
            latest=self._facts.latest,
            find_run=lambda run_id: find_run(self._parts.archive, self._parts.journal, run_id),
            find_interference=lambda run_id: find_interference(self._parts.interferences, self._parts.journal, run_id),
            healthy=self.healthy,
            verdict=lambda: self._outlook.text,
            log=self._log,
        )
        self._signals = Signals(
            self._loop,
            reload=self._reloading.trigger,
            sweep=lambda: self._sweeping.attempt("signal"),
            before_leaving=self.tidy_up,
        )

    # --- start and turn

    async def run(self) -> Exit:
        """Serve until a signal says stop."""
        self._signals.take()
        self._serving.start()
        config = self._parts.config
        self._past.read_back(self._parts)  # first: it makes the directories that the first event goes to
        self._facts.event("started", f"mpswatch started (pid {os.getpid()})")
        self._schedule.start()
        self._schedule.every("poll", config.poll.interval, first_in=0.0)
        if self._copying.configured:
            interval = config.archive.remote.interval
            self._schedule.every("copy", interval, first_in=0.0, jitter=COPY_JITTER * interval)
        self._check_client()
        self._log.info("serving", addresses=self._serving.addresses)
        self._notifier.ready("watching")
        tick = asyncio.create_task(self._turn())
        await self._signals.stopping.wait()
        await self._stop()
        tick.cancel()
        return Exit.OK

    def _check_client(self) -> None:
        config, simulated = self._parts.config, self._parts.simulated
        self._client_worker.offer(
            lambda: check_client(config, simulated=simulated), self._client_checked, self._check_failed
        )

    def healthy(self) -> bool:
        """Whether the loop turns, polls come back and pages are served: `/-/healthy` and systemd are told the same."""
        busy = self._poll_worker.busy_seconds
        turns = time.monotonic() - self._turned < FROZEN
        return turns and (busy is None or busy < POLL_HANGS) and self._serving.alive

    async def _turn(self) -> None:
        watchdog = self._notifier.watchdog
        pause = min(TICK, watchdog / 3) if watchdog is not None else TICK
        given_back = self._turned
        while True:
            self._turned = time.monotonic()
            if self.healthy():
                self._notifier.alive()
            self._facts.look_after()
            if self._turned - given_back >= memory.GIVE_BACK_SECONDS:
                given_back = self._turned
                memory.give_back()
            step = self._schedule.follow_the_clock()
            if step:
                self._log.warning("the clock was stepped", seconds=round(step, 3))
            await asyncio.sleep(pause)

    # --- what comes back from the threads

    def _polled(self, snapshot: PollSnapshot, events: Sequence[Event], logs: FaultLook) -> None:
        if not self._settled:  # the driver's library is loaded by now, and all else that stays
            self._settled = True
            memory.settle()
        self._past.note(events, logs)
        plans = [self._parts.plan.name, *(plan for plan in intervals(self._parts.config) if plan == "thorough")]
        self._facts.latest.expect([(*target, plan) for target in targets(snapshot) for plan in plans])
        self._consider()
        self._past.look()

    def _adopt(self, daemons: tuple[DaemonAddress, ...]) -> None:
        """Go on with other control daemons: those that were found to run here by now."""
        before = {address.name for address in self._parts.addresses}
        self._parts = replace(self._parts, addresses=daemons)
        self._facts.configure(self._parts)
        found = [address.name for address in daemons if address.name not in before]
        for name in sorted(before - {address.name for address in daemons}):
            message = f"the control daemon {name} is gone, and no longer watched"
            self._facts.event("daemon_dropped", message, target=Target(name, ""))
        for name in found:
            self._facts.event("daemon_found", f"the control daemon {name} runs here", target=Target(name, ""))
        restored = self._past.restored_by_now()
        if found and restored is not None:
            now = datetime.now(UTC)
            self._facts.latest.restore(restored.runs, now=now)
            self._facts.latest.restore(restored.interferences, now=now)
            self._schedule.at_least_in("sweep", min(self._sweeping.first_in(name, restored) for name in found))

    def _swept(self, outcomes: Sequence[Outcome]) -> None:
        memory.give_back()
        self._judging.judge(outcomes)
        self._after_sweep(outcomes)

    def _client_checked(self, said: Refusal | str) -> None:
        self._outlook.client = said
        self._consider()

    def _check_failed(self, error: Exception) -> None:
        self._log.error("the client's interpreter could not be asked", exc_info=error)

    def _consider(self) -> None:
        """Judge anew after whatever changed; sweep at once when what refused the last sweep has passed."""
        if self._signals.stopping.is_set():
            return
        turned_good = self._outlook.consider(
            self._parts, self._polling.previous, paused=self._past.paused, sweeping=self._sweeping.running
        )
        restored = self._past.restored_by_now()
        if restored is not None and self._polling.previous is not None:
            self._own_schedules.arrange(self._parts.config, restored)
        if self._schedule.due_in("sweep") is None:
            self._schedule_first_sweep()
        elif turned_good and self._sweeping.refused:
            self._schedule.at_least_in("sweep", 0.0)

    def _schedule_first_sweep(self) -> None:
        """Once both the first poll and what earlier processes left are known."""
        sweep, restored = self._parts.config.sweep, self._past.restored_by_now()
        if restored is None or self._polling.previous is None or not sweep.enabled:
            return
        own = self._sweeping.newest_starts.get("quick")
        starts = [start for start in (restored.newest_start, own) if start is not None]
        newest = max(starts, default=None)
        first = first_sweep_in(
            interval=sweep.interval, newest_start=newest, known=restored.known, now=datetime.now(UTC)
        )
        first = 0.0 if self._first_sweep_at_once else first
        self._schedule.every("sweep", sweep.interval, first_in=first, jitter=sweep.jitter)

    # --- reload, stop

    def _take_config(self, config: Config) -> None:
        before, self._parts = self._parts.config, remake_parts(self._parts, config)
        logs.set_up(config.log.level, config.log.format)
        self._facts.configure(self._parts)
        if config.poll != before.poll:
            self._schedule.every("poll", config.poll.interval, first_in=0.0)
        if config.interference != before.interference or config.sweep != before.sweep:
            self._own_schedules.off()  # the next poll arranges them anew
        if config.sweep != before.sweep:
            self._schedule.off("sweep")
            self._first_sweep_at_once = False
            self._schedule_first_sweep()
            self._check_client()
        self._polling.trigger()

    def tidy_up(self) -> None:
        """Remove the measuring client's program, unless one may still be at work: it is not to lose it."""
        if not self._sweeping.running:
            shutil.rmtree(self._work_directory, ignore_errors=True)

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
        self._facts.event("stopped", "mpswatch stopped")
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
