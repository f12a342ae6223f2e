"""What is known right now, as one immutable object: the only thing that metrics, page and API read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

from mpswatch.documents import Event, HistoryLook, InterferenceDocument, PollSnapshot, Reason, SweepDocument

Outcome: TypeAlias = Literal["complete", "partial", "failed", "refused"]
"""How an attempt to sweep ended: every cell measured, some, none (or no document at all), or not begun."""

Measurement: TypeAlias = SweepDocument | InterferenceDocument

OUTCOMES: tuple[Outcome, ...] = ("complete", "partial", "failed", "refused")

INTERFERENCE = "interference"
"""The plan that attempts to measure pairs are counted under. Its documents are others, without a curve."""


class Target(NamedTuple):
    """What a sweep measures: one GPU of one control daemon under one plan. `gpu_uuid` is empty while unknown."""

    daemon: str
    gpu_uuid: str
    plan: str


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """How asking one source went. `success` and `duration_seconds` are None once the poll went stale."""

    success: bool | None
    duration_seconds: float | None
    reason: Reason | None
    detail: str | None
    last_success_at: datetime | None


@dataclass(frozen=True, slots=True)
class SweepHealth:
    """The last executed run of a target. `document` is None once it went stale (its times remain)."""

    document: SweepDocument | None
    caps: tuple[str, ...]
    outcome: Outcome
    finished_at: datetime
    last_success_at: datetime | None


@dataclass(frozen=True, slots=True)
class InterferenceHealth:
    """The last interference measurement of a daemon and GPU. `document` is None once it went stale."""

    document: InterferenceDocument | None
    finished_at: datetime
    run_id: str


@dataclass(frozen=True, slots=True)
class Run:
    """One line of history for the page: a run, or an attempt that was refused or failed."""

    at: datetime
    target: Target
    outcome: Outcome
    reason: str | None
    message: str | None
    run_id: str | None


@dataclass(frozen=True, slots=True)
class RemoteHealth:
    """How copying runs to the remote target went since the start of this process.

    `missing` is how many it lacked after the newest round that could tell, None before the first.
    """

    missing: int | None = None
    failures: int = 0
    last_success_at: datetime | None = None
    fault: str | None = None

    def copied(self, at: datetime | None, *, missing: int | None, fault: str | None) -> RemoteHealth:
        """Give the health after one more round: `at` and the rest are as in `Latest.remote_copied`."""
        return RemoteHealth(
            missing=missing,
            failures=self.failures + (fault is not None),
            last_success_at=at if at is not None and fault is None else self.last_success_at,
            fault=fault,
        )


@dataclass(frozen=True, slots=True)
class ArchiveHealth:
    """How writing went since the start of this process; `bytes` and `last_success_at` are None while unknown.

    `remote` is None where no remote target is configured.
    """

    writes: int = 0
    failures: int = 0
    bytes: int | None = None
    last_success_at: datetime | None = None
    fault: str | None = None
    remote: RemoteHealth | None = None

    def written(self, at: datetime, total_bytes: int | None) -> ArchiveHealth:
        """Give the health after a write; `total_bytes` None leaves the size as it was known."""
        size = total_bytes if total_bytes is not None else self.bytes
        return replace(self, writes=self.writes + 1, bytes=size, last_success_at=at, fault=None)

    def failed(self, detail: str) -> ArchiveHealth:
        """Give the health after a write that failed."""
        return replace(self, failures=self.failures + 1, fault=detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One moment of what is known. `version` differs whenever anything else does.

    `poll` is None before the first poll and once it went stale; `poll_unknown` says which. Mappings are
    never changed after construction. Counters count since the start of this process. `history` has how the run in
    `sweeps` stands against earlier ones, where that is known. `context_limit` is the configured one.
    """

    version: int
    host: str
    simulated: bool
    mpswatch_version: str
    started_at: datetime
    poll_interval: float
    sweep_interval: float | None
    context_limit: int | None
    daemons: tuple[str, ...]
    targets: tuple[Target, ...]
    first_poll_finished: bool
    poll: PollSnapshot | None
    poll_unknown: Reason | None
    sources: Mapping[tuple[str, str], SourceHealth]
    sweeps: Mapping[Target, SweepHealth]
    outcomes: Mapping[tuple[Target, Outcome], int]
    refusals: Mapping[tuple[Target, Reason], int]
    refused: Mapping[Target, Event]
    running: frozenset[tuple[str, str]]
    stuck: Mapping[tuple[str, str], tuple[int, ...]]
    server_changes: Mapping[str, int]
    gpu_faults: Mapping[str, int]
    fault_logs: Mapping[str, Reason | None]
    paused: bool
    archive: ArchiveHealth
    sink_failures: Mapping[str, int]
    runs: tuple[Run, ...]
    events: tuple[Event, ...]
    history: Mapping[Target, HistoryLook]
    interferences: Mapping[tuple[str, str], InterferenceHealth]

    @property
    def to_measure(self) -> tuple[Target, ...]:
        """The targets that have a curve to show, or lack it.

        Not those that stand for attempts from a moment when no GPU could be seen (no `gpu_uuid`), once their daemon and
        plan have one with a GPU's name; nor interference.
        """
        named = {(target.daemon, target.plan) for target in self.targets if target.gpu_uuid}
        return tuple(
            target
            for target in self.targets
            if (target.gpu_uuid or (target.daemon, target.plan) not in named) and target.plan != INTERFERENCE
        )


def outcome(document: Measurement) -> Outcome:
    """Say how an executed run ended: `failed` when not one cell was measured."""
    if isinstance(document, InterferenceDocument):
        complete, states = document.complete, {cell.state for cell in (*document.solo, *document.pairs)}
    else:
        complete, states = document.complete_sweep, {cell.state for cell in document.cells}
    return "complete" if complete else "failed" if states <= {"unknown"} else "partial"


def finished_at(document: Measurement) -> datetime:
    """Give a run's own time: when it finished, else (a reference document) when it was recorded."""
    return document.finished_at or document.recorded_at
