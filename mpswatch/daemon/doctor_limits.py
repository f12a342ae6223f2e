"""What the doctor says of limits that a control daemon or its server sets for every client, ours included."""

from __future__ import annotations

from collections.abc import Iterator

from mpswatch.daemon.finding import Line
from mpswatch.documents import DaemonLook
from mpswatch.evidence.limits import amount


def limits(look: DaemonLook) -> Iterator[Line]:
    """A percentage under 100, now or for servers to come, and memory limits. Nothing where none is set."""
    servers = look.servers.value or ()
    for server in servers:
        share = server.active_thread_percentage
        if share is not None and share < 100:
            yield Line(
                "mend",
                "percentage",
                f"server {server.pid} gives each client {share:g} % at most, ours too: every cap above that measures"
                f" {share:g} %",
                f"let its owner send `set_active_thread_percentage {server.pid} 100`, or leave the caps above out",
            )
        for uuid, limit in (server.memory_limits or {}).items():
            if limit is not None:
                detail = f"server {server.pid} gives each client {amount(limit)} of {uuid} at most, ours too"
                yield Line("note", "memory limit", detail)
    share = look.default_active_thread_percentage
    if share is not None and share < 100:
        running = any(server.active_thread_percentage is not None for server in servers)
        yield Line(
            "note" if running else "mend",
            "default percentage",
            f"servers that {look.name} starts from now on give each client {share:g} % at most, which flattens a sweep"
            " above that",
            "start the daemon without CUDA_MPS_ACTIVE_THREAD_PERCENTAGE and set_default_active_thread_percentage",
        )
