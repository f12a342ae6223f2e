"""What the cells of a sweep share, and what one of them comes to know on its way."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from mpswatch.documents import Conditions, Reason
from mpswatch.errors import MpswatchError
from mpswatch.sweep.conversation import Talk
from mpswatch.sweep.log import LauncherLog
from mpswatch.sweep.membership import Member
from mpswatch.sweep.messages import Attached, Forked, Gone, Result
from mpswatch.sweep.permit import Limits
from mpswatch.sweep.plan import Plan
from mpswatch.sweep.ports import Ports, Watcher


class CellError(MpswatchError):
    """The cell is over without a number."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What all cells of a sweep share. `sweep_end` is a time.monotonic.

    `request` is what a cell is asked beyond the quick protocol; `look` how often (s) the GPU's conditions are noted
    while it measures, None for before and after alone.
    """

    plan: Plan
    seed: int
    limits: Limits
    gpu_uuid: str
    ports: Ports
    conversation: Talk
    log: LauncherLog
    sweep_end: float
    watch: Watcher
    request: Mapping[str, object] = field(default_factory=dict)
    look: float | None = None


@dataclass(kw_only=True)
class Seen:
    """One cell, as far as it came. Times are time.monotonic, but for `measured_at`.

    `asked` is whether the launcher was asked for it, `told_at` when it was told to go, `during` what the GPU was doing
    at moments from then on.

    `joined` are the pids that were new on the daemon's list, None where it was not read. `failed_itself` means that
    the child said why, and leaves without being asked; `never_forked` that the launcher made none.
    `result` is only there when the client was still on the list, on the same server, after it.
    """

    order: int
    cap: str
    started: float = field(default_factory=time.monotonic)
    forked: Forked | None = None
    attached: Attached | None = None
    attached_at: float | None = None
    member: Member | None = None
    joined: tuple[int, ...] | None = None
    before: Conditions | None = None
    asked: bool = False
    told_at: float | None = None
    during: list[tuple[float, Conditions]] = field(default_factory=list)
    result: Result | None = None
    measured_at: datetime | None = None
    after: Conditions | None = None
    failed_itself: bool = False
    never_forked: bool = False
    gone: Gone | None = None


@dataclass(frozen=True, kw_only=True)
class Left:
    """How the child left. `at` (time.monotonic) is when it was off the daemon's list, None where that was not seen.

    `clients` is the daemon's list after it, None with the `reason` where the daemon did not say. `stuck` are the pids
    that did not leave in time: the child's, or its launcher's where the child's is not known.
    """

    at: float | None
    clients: tuple[int, ...] | None
    reason: Reason | None
    stuck: tuple[int, ...] = ()
