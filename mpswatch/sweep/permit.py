"""The nouns of the preflight: what limits it, what it must know, and its two answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mpswatch.documents import DaemonLook, GpuLook, Reason, ServerLook


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What configuration says about disturbing others. Seconds, bytes, ratios 0-1.

    `client_uid` is whom the measuring client runs as. `stack_uid` names the stack's user: with no server running, a
    sweep would create one for its own uid and lock every other user out, so it may only where the two are the same.
    `memory_margin_bytes` must stay free beside what a cell needs.
    """

    client_uid: int
    stack_uid: int | None = None
    settle: float = 120.0
    context_limit: int = 48
    headroom: int = 4
    memory_margin_bytes: int = 512 << 20
    max_utilization: float | None = None
    fault_quiet: float = 600.0


@dataclass(frozen=True, kw_only=True)
class LockHolder:
    """Who /proc/locks says took the lock on the pipe directory; `age_seconds` is None when that process is gone.

    `left_over` means that an earlier sweep of this process ended while it was still there.
    """

    pid: int
    age_seconds: float | None
    left_over: bool = False


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """What the decision needs beside the snapshot.

    `last_fault_age` is seconds since the last fault of this daemon's server, None when none is known.
    `lock_holders` are others than our own launcher. `available_memory` is MemAvailable in bytes, None where unknown.
    `need_bytes` is what a cell takes; `sweep_longest` how long (s) any sweep can be at work, drain time included.
    """

    need_bytes: int
    last_fault_age: float | None = None
    lock_holders: Sequence[LockHolder] = ()
    available_memory: int | None = None
    sweep_longest: float = 330.0


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A sweep, or its next cell, must not run: a recorded outcome. `remedy` says what to do, where that is known."""

    reason: Reason
    detail: str
    remedy: str | None = None


@dataclass(frozen=True, kw_only=True)
class Permit:
    """The server that a client of ours may join; `server_pid` None where our first cell may create it.

    `own` marks a server that a permitted cell of this sweep started: it need not have settled.
    `clients` are the pids that it had when it was looked at. `server` and `gpu` are what was seen.
    """

    simulated: bool
    daemon: DaemonLook
    gpu: GpuLook
    server: ServerLook | None
    own: bool = False

    @property
    def server_pid(self) -> int | None:
        return None if self.server is None else self.server.pid

    @property
    def start_ticks(self) -> int | None:
        return None if self.server is None else self.server.start_ticks

    @property
    def clients(self) -> tuple[int, ...]:
        return () if self.server is None else self.server.clients or ()
