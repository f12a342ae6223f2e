"""What a sweep asks of the outside, as functions: the daemon wires them, tests give their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mpswatch.documents import Conditions, DaemonLook, Fact, PollSnapshot
from mpswatch.proc import Processes
from mpswatch.sweep.progress import Progress
from mpswatch.sweep.runtime import Runtime


class Address(Protocol):
    """Which control daemon: `name` as in the snapshots (`poll.DaemonAddress` is one)."""

    @property
    def name(self) -> str: ...

    @property
    def pipe_directory(self) -> Path: ...


class Log(Protocol):
    """A line for the operator: an event and its fields (a structlog logger's `info` is one)."""

    def __call__(self, event: str, **fields: object) -> object: ...


def _silent(event: str, **fields: object) -> None:
    """No log."""


@dataclass(frozen=True, kw_only=True)
class Ports:
    """Everything is called from the thread that runs the sweep, and comes back within its own deadline.

    `look` is a full, fresh snapshot; `look_at_daemon` the control daemon alone, on one connection, without contexts.
    `record` must have made a `sweep_started` event durable when it returns: the launcher starts after it.
    `last_fault_age` is in seconds, None when no fault is known. `meminfo` is for hosts with unified memory.
    """

    look: Callable[[], PollSnapshot]
    look_at_daemon: Callable[[], DaemonLook]
    conditions: Callable[[str], Conditions]
    processes: Processes
    runtime: Runtime
    record: Callable[[Fact], None]
    last_fault_age: Callable[[], float | None] = lambda: None
    log: Log = _silent
    meminfo: Path = Path("/proc/meminfo")


Watcher = Callable[[Progress], None]


def unwatched(step: Progress) -> None:
    """Nobody watches."""
