"""What a control daemon or its servers give each client at most, in words for every view. Pure; no limit, no word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mpswatch.documents import DaemonLook, Reason


class Given(NamedTuple):
    """Whose clients, and what each of them is given at most, as `40 %` and `2 GiB of GPU-e8d742f7`."""

    clients_of: str
    at_most: tuple[str, ...]


def given(look: DaemonLook) -> Iterator[Given]:
    """A server, or the servers to come, where a percentage under 100 or a memory limit is set."""
    for server in look.servers.value or ():
        said = (*_percentage(server.active_thread_percentage), *_memory(server.memory_limits))
        if said:
            yield Given(f"server {server.pid}", said)
    said = (*_percentage(look.default_active_thread_percentage), *_memory(look.default_memory_limits))
    if look.unknown.get("default_memory_limits") is Reason.IDENTITY_AMBIGUOUS:  # one is set, and nobody knows where
        said = (*said, f"memory unknown: {Reason.IDENTITY_AMBIGUOUS}")
    if said:
        yield Given("servers to come", said)


def amount(limit: int) -> str:
    """Bytes in the unit that they are whole in."""
    return f"{limit >> 30} GiB" if limit >> 30 << 30 == limit else f"{limit >> 20} MiB"


def _percentage(share: float | None) -> tuple[str, ...]:
    return () if share is None or share >= 100 else (f"{share:g} %",)


def _memory(limits: dict[str, int | None] | None) -> Iterator[str]:
    for uuid, limit in sorted((limits or {}).items()):
        if limit is not None:
            yield f"{amount(limit)} of {uuid[:12]}"
