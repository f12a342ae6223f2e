"""Percentages and memory limits are asked now and then only, and remembered with the moment that they were asked.

Each question leaves lines in control.log, which nobody rotates. So they are asked when a server is new or other GPUs
are there, and every ten minutes, for somebody may have set another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import msgspec

from mpswatch.documents import DaemonLook, GpuLook, Reason, ServerLook

PERIOD = 600.0
"""Seconds; at 15 s a poll their lines are then some 2 % of what mpswatch adds to control.log."""

_OF_A_SERVER = ("active_thread_percentage", "memory_limits")


@dataclass(frozen=True, slots=True)
class _Asked:
    at: float
    gpus: tuple[str, ...] | None
    look: DaemonLook


class Limits:
    """What the control daemons said when they were asked last. For one thread at a time."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._asked: dict[str, _Asked] = {}
        self.gpus: tuple[str, ...] | None = None
        """The GPUs to ask for, by uuid: None before the first look. One that MIG divides has no limit of its own."""

    def see(self, gpus: Sequence[GpuLook] | None) -> None:
        """Take note of the GPUs that are there; a moment in which none can be looked at changes nothing."""
        if gpus is not None:
            self.gpus = tuple(look.gpu.uuid for look in gpus if not look.gpu.mig_enabled)
        self.gpus = self.gpus or ()

    def keep(self, daemons: Collection[str]) -> None:
        """Forget all others."""
        self._asked = {name: asked for name, asked in self._asked.items() if name in daemons}

    def due(self, daemon: str) -> bool:
        """Whether it is time to ask this daemon again."""
        asked = self._asked.get(daemon)
        return asked is None or asked.gpus != self.gpus or self._monotonic() - asked.at >= PERIOD

    def complete(self, look: DaemonLook) -> DaemonLook:
        """`look` with what is remembered of its servers, where it was not asked this time."""
        if look.servers.value is None:
            return look
        if look.limits_asked_at is not None:
            self._asked[look.name] = _Asked(self._monotonic(), self.gpus, look)
            return look
        if look.name not in self._asked:
            return look
        earlier = self._asked[look.name].look
        before = {_key(server): server for server in earlier.servers.value or ()}
        if any(_key(server) not in before for server in look.servers.value):
            del self._asked[look.name]  # a sweep's own look has met it first: it is asked about at the next poll
        servers = tuple(_complete(server, before.get(_key(server))) for server in look.servers.value)
        return msgspec.structs.replace(
            look,
            servers=msgspec.structs.replace(look.servers, value=servers),
            default_memory_limits=earlier.default_memory_limits,
            limits_asked_at=earlier.limits_asked_at,
            unknown=_with_earlier(look.unknown, ("default_memory_limits",), earlier.unknown),
        )


def _key(server: ServerLook) -> tuple[int, int | None]:
    return (server.pid, server.start_ticks)


def _complete(server: ServerLook, before: ServerLook | None) -> ServerLook:
    if before is None:
        return server
    return msgspec.structs.replace(
        server,
        active_thread_percentage=before.active_thread_percentage,
        memory_limits=before.memory_limits,
        unknown=_with_earlier(server.unknown, _OF_A_SERVER, before.unknown),
    )


def _with_earlier(unknown: dict[str, Reason], names: Sequence[str], before: dict[str, Reason]) -> dict[str, Reason]:
    """`unknown` with the earlier look's word for `names`."""
    kept = {name: reason for name, reason in unknown.items() if name not in names}
    return kept | {name: before[name] for name in names if name in before}
