"""The plans that have a schedule of their own, off by default: thorough sweeps and interference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

from mpswatch.config import Config
from mpswatch.daemon.first_sweep import first_sweep_in
from mpswatch.daemon.restore import Restored
from mpswatch.daemon.schedule import Schedule

PLANS = ("thorough", "interference")

AFTER_START = 120.0
"""Seconds after the daemon's start before the first of them: the quick sweep comes first."""


def intervals(config: Config) -> dict[str, float]:
    """The interval of each plan that is on."""
    found = {"thorough": config.sweep.thorough.interval, "interference": config.interference.interval}
    return {plan: interval for plan, interval in found.items() if interval is not None}


class OwnSchedules:
    """Arranges them once it is known what earlier processes started: a crash loop must not measure here either."""

    def __init__(self, schedule: Schedule, starts: Callable[[], Mapping[str, datetime]]) -> None:
        self._schedule = schedule
        self._starts = starts

    def arrange(self, config: Config, restored: Restored) -> None:
        """Schedule what is on and not yet scheduled."""
        for plan, interval in intervals(config).items():
            if self._schedule.due_in(plan) is None:
                started = [*starts_of(restored, plan), *(at for name, at in self._starts().items() if name == plan)]
                first = first_sweep_in(
                    interval=interval,
                    newest_start=max(started, default=None),
                    known=restored.known,
                    now=datetime.now(UTC),
                )
                jitter = min(config.sweep.jitter, interval / 10)
                self._schedule.every(plan, interval, first_in=max(first, min(AFTER_START, interval)), jitter=jitter)

    def off(self) -> None:
        """Take all of them off the schedule, for `arrange` to put on anew."""
        for plan in PLANS:
            self._schedule.off(plan)


def starts_of(restored: Restored, plan: str, daemon: str | None = None) -> Iterator[datetime]:
    """When earlier processes started that plan, under `daemon` alone where one is named."""
    for run in restored.runs:
        if run.protocol.plan == plan and (daemon is None or (run.mps is not None and run.mps.daemon == daemon)):
            yield run.started_at or run.recorded_at
    for event in restored.events:
        if event.kind == "sweep_started" and event.plan == plan and daemon in {None, event.daemon}:
            yield event.at
    if plan == "interference":
        yield from (document.started_at for document in restored.interferences)
