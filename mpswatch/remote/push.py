"""Copy what is missing: oldest first, each with retries, until it is all there or the time is up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mpswatch.archive import RunEntry

ATTEMPTS = 3
FIRST_PAUSE = 0.5
"""Seconds before the second attempt; each further pause is twice as long, and every one is varied by a half."""

GIVE_UP_AFTER = 3
"""Files in a row that would not go: the target is down, and the rest waits for the next call."""


class Holds(Protocol):
    """What is needed of the other end (`target.Target`)."""

    def sizes(self, folder: str) -> dict[str, int]:
        """Names of the files in `folder` with their bytes."""

    def put(self, local: Path, folder: str) -> None:
        """Copy a file into `folder`, complete or not at all."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a call found and did. `missing` runs are not at the target afterwards; `error` is the last one met."""

    runs: int
    present: int
    copied: int
    copied_bytes: int
    missing: int
    error: str | None
    seconds: float


def push(
    entries: Iterable[RunEntry],
    target: Holds,
    *,
    deadline: float,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Report:
    """Copy each run that the target lacks, or holds with another size. Never raises for what the target does.

    `deadline` is in seconds from now; no attempt starts after it. A run that local retention removes meanwhile is
    neither copied nor missing.
    """
    began = clock()
    round_trip = _Round(target, give_up=began + deadline, pause=pause, clock=clock)
    runs = 0
    for entry in sorted(entries, key=lambda entry: (entry.started, entry.path.name)):
        runs += 1
        if round_trip.late() or round_trip.refused_in_a_row >= GIVE_UP_AFTER:
            continue
        try:
            round_trip.deliver(entry, entry.path.stat().st_size)
        except FileNotFoundError:
            runs -= 1
    missing = runs - round_trip.present - round_trip.copied
    late = f"not done within {deadline:g} s" if round_trip.late() else None
    return Report(
        runs=runs,
        present=round_trip.present,
        copied=round_trip.copied,
        copied_bytes=round_trip.copied_bytes,
        missing=missing,
        error=(round_trip.error or late) if missing else None,
        seconds=round(clock() - began, 3),
    )


class _Round:
    """One call's dealings with the target: what it holds, as far as looked, and how the copying goes."""

    def __init__(
        self, target: Holds, *, give_up: float, pause: Callable[[float], None], clock: Callable[[], float]
    ) -> None:
        self.present = self.copied = self.copied_bytes = self.refused_in_a_row = 0
        self.error: str | None = None
        self._target = target
        self._give_up = give_up
        self._pause = pause
        self._clock = clock
        self._held: dict[str, dict[str, int]] = {}

    def late(self) -> bool:
        return self._clock() >= self._give_up

    def deliver(self, entry: RunEntry, size: int) -> None:
        """Make sure that the target has this run, in up to `ATTEMPTS` attempts."""
        for attempt in range(ATTEMPTS):
            if attempt:
                self._pause(FIRST_PAUSE * 2 ** (attempt - 1) * random.uniform(0.5, 1.5))  # noqa: S311 - spreads a fleet
            if self.late():
                return
            try:
                self._attempt(entry, size)
            except Exception as caught:  # noqa: BLE001 - every back end raises errors of its own
                self.error = f"{entry.path.name}: {type(caught).__name__}: {caught}"[:500]
            else:
                self.refused_in_a_row = 0
                return
        self.refused_in_a_row += 1

    def _attempt(self, entry: RunEntry, size: int) -> None:
        there = folder(entry)
        if there not in self._held:
            self._held[there] = self._target.sizes(there)
        if self._held[there].get(entry.path.name) == size:
            self.present += 1
            return
        self._target.put(entry.path, there)
        self.copied += 1
        self.copied_bytes += size


def folder(entry: RunEntry) -> str:
    """Where a run lies at the target: by host and month, so that a fleet shares a bucket and a look there is short.

    A rehearsal's runs have a folder of their own, as they have here.
    """
    kind = "simulated" if entry.simulated else "runs"
    return f"{kind}/{entry.host}/{entry.started:%Y-%m}"
