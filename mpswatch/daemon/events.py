"""Events that the daemon itself makes: what happened, as one line of the journal."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from mpswatch.documents import Event, EventKind, Reason


class Target(NamedTuple):
    """What one sweep measures. `gpu_uuid` is empty while no GPU is known."""

    daemon: str
    gpu_uuid: str


class Events:
    """Makes events of this host, marked with the kind of stack they come from."""

    def __init__(self, host: str, *, simulated: bool, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._host = host
        self._simulated = simulated
        self._now = now

    def event(
        self,
        kind: EventKind,
        message: str,
        *,
        target: Target | None = None,
        plan: str | None = None,
        reason: Reason | None = None,
        **details: Any,  # noqa: ANN401 - whatever JSON holds
    ) -> Event:
        return Event(
            kind=kind,
            at=self._now(),
            host=self._host,
            message=message,
            simulated=self._simulated,
            daemon=target.daemon if target is not None else None,
            gpu_uuid=target.gpu_uuid if target is not None else None,
            plan=plan,
            reason=reason,
            details=details,
        )
