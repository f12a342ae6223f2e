"""Who is on the stage: control daemons and tenants, and what the driver would list of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from mpswatch.rehearsal import gpus, state, tenants
from mpswatch.rehearsal.commands import command_of
from mpswatch.rehearsal.layout import DaemonPaths
from mpswatch.rehearsal.smi import Row


class Daemon(msgspec.Struct, kw_only=True):
    """One control daemon: `pid` is None while it is down."""

    paths: DaemonPaths
    options: state.Options
    pid: int | None = None
    frozen: bool = False


class Place(msgspec.Struct, kw_only=True):
    """A tenant that is there, and what has to be tidied after it."""

    tenant: tenants.Tenant
    child: int
    cgroups: list[Path]


def rows(daemons: Iterable[Daemon], places: Mapping[int, Place], ghosts: Iterable[Row]) -> list[Row]:
    """Every process on every device: servers, tenants, and the measuring clients that have come from outside."""
    found = list(ghosts)
    clients: dict[int, int] = {}
    for daemon in daemons:
        server = state.server(daemon.paths)
        if server is None:
            continue
        clients |= {client.pid: client.device for client in server.clients}
        name = "nvidia-cuda-mps-server"
        found.extend(
            Row(pid=server.pid, device=device, memory_mib=gpus.SERVER_MIB, mps_client=False, name=name)
            for device in daemon.options.devices
        )
    for pid, place in places.items():
        managed = clients.pop(pid, None) is not None
        if place.tenant.managed and not managed:
            continue  # not attached yet, or queued: no context, so no memory
        found.extend(
            Row(pid=pid, device=device, memory_mib=mib, mps_client=managed, name=place.tenant.shown_name)
            for device, mib in place.tenant.memory_mib.items()
        )
    found.extend(
        Row(pid=pid, device=device, memory_mib=gpus.CLIENT_MIB, mps_client=True, name=command_of(pid))
        for pid, device in clients.items()
    )
    return found
