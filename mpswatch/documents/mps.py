"""An MPS control daemon and its servers."""

from __future__ import annotations

from datetime import datetime

from mpswatch.documents.envelope import Document, Envelope
from mpswatch.documents.numbers import Number32, Percent, Seconds, Whole
from mpswatch.documents.reasons import Reason

WORKING_STATES = frozenset({"ACTIVE", "Ready"})
"""What protocol 2 and protocol 3 call the state of a server that serves its clients."""


class Context(Document, frozen=True, kw_only=True):
    """One row of the control program's `ps`. Enrichment, never the proof.

    A client on several GPUs has one row, for its first (recording: two-gpus); `device` is cut short.
    """

    pid: Number32
    context_id: Whole
    server_pid: Number32
    device: str
    pid_namespace: Whole | None
    command: str


class ServerLook(Document, frozen=True, kw_only=True):
    """One MPS server. Numbers that are None have their reason in `unknown`.

    `start_ticks` is field 22 of /proc/PID/stat (clock ticks since boot): with the pid it identifies the
    process. `clients` are pids in the control daemon's pid namespace, ascending. `name` is what protocol 3 calls it;
    in protocol 2 a server has none. There `uid` is the one that the process runs as, in protocol 3 its owner's.

    `active_thread_percentage` and `memory_limits` (bytes by GPU uuid; null: none is set) are what each of its clients
    is given at most; a memory limit is as the control program prints it, rounded down to its unit (2500M reads 2G).
    They were asked at the daemon's `limits_asked_at`.
    """

    pid: Number32
    name: str | None = None
    start_ticks: Whole | None = None
    age_seconds: Seconds | None = None
    uid: Number32 | None = None
    multi_user: bool | None = None
    server_state: str | None = None
    clients: tuple[Number32, ...] | None = None
    contexts: tuple[Context, ...] | None = None
    context_limit: Whole | None = None
    active_thread_percentage: Percent | None = None
    memory_limits: dict[str, Whole | None] | None = None
    unknown: dict[str, Reason] = {}


class WaitingClient(Document, frozen=True, kw_only=True):
    """A client on the control daemon's pending list. `pid` is as the daemon knows it, 0 where it does not."""

    pid: Number32
    uid: Number32


class Waiting(Document, frozen=True, kw_only=True):
    """Clients of another uid, and the daemon's intention to shut the running server down for them (control.log).

    `shutdown_armed`: it does so at the server's first idle moment, even if the client has died since, and then clients
    of the right uid hang. `clients` are those whose process is still there.
    """

    clients: tuple[WaitingClient, ...] = ()
    shutdown_armed: bool = False


class DaemonLook(Document, frozen=True, kw_only=True):
    """One control daemon at one poll.

    `up` is None when the daemon could be neither spoken to nor found absent (no program, no answer).
    `our_session` is the session id of the measuring client's launcher that holds the lock on the pipe
    directory, so the managed processes of that session are ours; None when nobody holds it.
    `visible_devices` are the daemon's CUDA_VISIBLE_DEVICES, None for all GPUs or where they cannot be read.
    `default_memory_limits` (bytes by GPU uuid; null: none is set) and `default_active_thread_percentage` are what
    servers begin with that are started later; a GPU of which it is not known is left out, with the reason in
    `unknown`. Limits are asked now and then only: at `limits_asked_at`.
    """

    name: str
    pipe_directory: str
    up: bool | None
    up_reason: Reason | None = None
    protocol: str | None = None
    default_active_thread_percentage: Percent | None = None
    servers: Envelope[tuple[ServerLook, ...]]
    our_session: Number32 | None = None
    waiting: Waiting | None = None
    visible_devices: tuple[str, ...] | None = None
    default_memory_limits: dict[str, Whole | None] | None = None
    limits_asked_at: datetime | None = None
    unknown: dict[str, Reason] = {}


class MpsFacts(Document, frozen=True, kw_only=True):
    """The control daemon and server that a sweep measured against, as the preflight saw them."""

    daemon: str
    protocol: str | None
    server_pid: Number32 | None
    server_start_ticks: Whole | None
    server_uid: Number32 | None
    multi_user: bool | None
    server_state: str | None
    default_active_thread_percentage: Percent | None
    server_active_thread_percentage: Percent | None = None
    unknown: dict[str, Reason] = {}
