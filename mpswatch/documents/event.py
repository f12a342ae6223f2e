"""What happened: the lines of the journal."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias

from mpswatch.documents.envelope import Document
from mpswatch.documents.reasons import Reason

EventKind: TypeAlias = Literal[
    "tenant_appeared",
    "tenant_left",
    "server_changed",
    "server_fault",
    "client_waiting",
    "service_escaped",
    "daemon_down",
    "daemon_up",
    "daemon_found",
    "daemon_dropped",
    "sweep_started",
    "sweep_refused",
    "sweep_failed",
    "client_stuck",
    "standing_began",
    "standing_ended",
    "paused",
    "resumed",
    "started",
    "stopped",
    "configuration_reloaded",
    "configuration_rejected",
]


class Event(Document, frozen=True, kw_only=True):
    """Something that happened: a line of the journal."""

    kind: EventKind
    at: datetime
    host: str
    message: str
    simulated: bool = False
    daemon: str | None = None
    gpu_uuid: str | None = None
    plan: str | None = None
    run_id: str | None = None
    reason: Reason | None = None
    details: dict[str, Any] = {}
