"""What a stack says of itself."""

from __future__ import annotations

from typing import Any

import msgspec

from mpswatch.rehearsal import state, tenants
from mpswatch.rehearsal.director import Director
from mpswatch.rehearsal.scene import Daemon


def status(director: Director) -> dict[str, Any]:
    """The whole stack as plain data; tell.py names the keys."""
    director.bury()
    return {
        "director": director.pid,
        "daemons": {name: _of_daemon(daemon) for name, daemon in director.daemons.items()},
        "tenants": [{"pid": pid, **_of_tenant(place.tenant)} for pid, place in director.places.items()],
        "departed": director.departed,
        "nvidia_smi": {"questions": director.smi_questions, "how": director.smi_how},
    }


def _of_tenant(tenant: tenants.Tenant) -> dict[str, Any]:
    return {
        "kind": tenant.kind,
        "name": tenant.name,
        "daemon": tenant.daemon,
        "uid": tenant.uid,
        "cgroup": tenant.cgroup,
        "memory_mib": {str(device): mib for device, mib in tenant.memory_mib.items()},
    }


def _of_daemon(daemon: Daemon) -> dict[str, Any]:
    server = state.server(daemon.paths)
    ends = state.unsafe_ends(daemon.paths)
    changing = daemon.paths.base / "changing.jsonl"
    return {
        "pid": daemon.pid,
        "up": daemon.pid is not None,
        "frozen": daemon.frozen,
        "pipe_directory": str(daemon.paths.pipe),
        "log_directory": str(daemon.paths.log),
        "server": msgspec.to_builtins(server),
        "attached_clients": [client.pid for client in server.clients if not client.service] if server else [],
        "unsafe_ends": msgspec.to_builtins(ends),
        "harmed_neighbours": [end.neighbour for end in ends if end.neighbour is not None],
        "changing_commands": [msgspec.json.decode(line) for line in changing.read_bytes().splitlines()]
        if changing.exists()
        else [],
    }
