"""The poll: one look at everything."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from mpswatch.documents.envelope import SCHEMA_VERSION, Document, Envelope
from mpswatch.documents.gpu import GpuLook
from mpswatch.documents.mps import DaemonLook
from mpswatch.documents.numbers import Seconds, Whole
from mpswatch.documents.reasons import Reason
from mpswatch.documents.tenants import Disagreement, ExpectationLook, Tenant


class SourceLook(Document, frozen=True, kw_only=True):
    """How asking one source went: `source` is `mps`, `nvml`, `nvidia-smi` or `proc`; `daemon` only for `mps`."""

    source: str
    daemon: str
    success: bool
    duration_seconds: Seconds
    reason: Reason | None = None
    detail: str | None = None


class SystemMemory(Document, frozen=True, kw_only=True):
    """The host's memory: the denominator where a GPU has none of its own (unified memory). `source` says whose word."""

    total_bytes: Whole | None
    available_bytes: Whole | None
    source: str = "/proc/meminfo"


class PollSnapshot(Document, frozen=True, kw_only=True):
    """One look at everything, without measuring anything.

    `foreign_unknown` maps each GPU (uuid) whose foreign figures are not known to the reason: its processes are not
    known, or nobody could say which of them are managed. Elsewhere the foreign tenants in `tenants` are all there are.
    """

    schema_version: Whole = SCHEMA_VERSION
    kind: Literal["poll"] = "poll"
    host: str
    started_at: datetime
    finished_at: datetime
    simulated: bool
    daemons: tuple[DaemonLook, ...]
    gpus: Envelope[tuple[GpuLook, ...]]
    tenants: Envelope[tuple[Tenant, ...]]
    disagreements: tuple[Disagreement, ...]
    sources: tuple[SourceLook, ...]
    foreign_unknown: dict[str, Reason] = {}
    expectations: tuple[ExpectationLook, ...] = ()
    system_memory: SystemMemory | None = None
