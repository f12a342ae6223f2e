"""Orders about who is on the GPU (tell.py says them in words)."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from mpswatch.rehearsal import smi, state, tenants
from mpswatch.rehearsal.director import Director
from mpswatch.rehearsal.layout import RehearsalError


def service(director: Director, *, name: str, wait: float = tenants.JOIN_PATIENCE, **looks: object) -> dict[str, Any]:
    """Processes that attach as clients of the daemon."""
    return _tenant(director, kind="service", name=name, memory_mib=636, wait=wait, looks=looks)


def foreign(
    director: Director, *, name: str, memory_mib: object = 658, wait: float = tenants.JOIN_PATIENCE, **looks: object
) -> dict[str, Any]:
    """Processes on the GPU that the daemon does not know."""
    return _tenant(director, kind="foreign", name=name, memory_mib=memory_mib, wait=wait, looks=looks)


def _tenant(
    director: Director, *, kind: str, name: str, memory_mib: object, wait: float, looks: dict[str, Any]
) -> dict[str, Any]:
    number = looks.pop("count", 1)
    if looks.pop("escaped", False):
        kind = "escaped"
    memory = looks.pop("memory_mib", memory_mib)
    daemon = looks.pop("daemon", "default")
    devices = looks.pop("devices", None) or [director.daemon(daemon).options.first_device]
    if not isinstance(memory, dict):
        memory = dict.fromkeys(devices, memory)
    arguments = looks.pop("arguments", None) or (f"/srv/{name}/.venv/bin/python3", f"/srv/{name}/main.py")
    busy = looks.pop("busy", kind == "service")
    known = {"kind": kind, "name": name, "arguments": arguments, "memory_mib": memory, "daemon": daemon, "busy": busy}
    tenant = msgspec.convert({**known, **looks}, tenants.Tenant, strict=False)
    if any(not 0 <= device < director.devices for device in tenant.memory_mib):
        raise RehearsalError(f"devices {sorted(tenant.memory_mib)} are not below {director.devices}")
    if tenant.arguments == () or tenant.kind not in {"service", "foreign", "escaped"}:
        raise RehearsalError("a tenant has arguments, and is a service or foreign")
    pids = director.add_all([tenant] * number, wait=wait)
    return {"pid": pids[0], "pids": pids}


def remove(director: Director, *, pid: int) -> None:
    """End one tenant."""
    director.remove(pid)


def ghost(director: Director, *, pid: int, memory_mib: int = 300, device: int = 0, name: str = "[Not Found]") -> None:
    """Memory booked to a process that does not exist."""
    director.ghosts.append(smi.Row(pid=pid, device=device, memory_mib=memory_mib, mps_client=False, name=name))


def fill(director: Director, *, leave: int = 0, daemon: str = "default") -> dict[str, Any]:
    """Take contexts until `leave` are free."""
    one = director.daemon(daemon)
    server = state.server(one.paths)
    free = one.options.context_limit - (len(server.clients) if server else 0) - leave
    filler = tenants.Tenant(
        kind="filler",
        name="filler",
        arguments=("/srv/filler/.venv/bin/python3", "/srv/filler/main.py"),
        memory_mib={one.options.first_device: 300},
        daemon=daemon,
        uid=server.uid if server else None,
    )
    return {"pids": director.add_all([filler] * max(free, 0), wait=10.0)}


def drain(director: Director) -> None:
    """End those who came by `fill` and `queue`."""
    for pid, place in list(director.places.items()):
        if place.tenant.kind in {"filler", "waiting"}:
            director.remove(pid)


def queue(director: Director, *, uid: int, memory_mib: int = 300, daemon: str = "default") -> dict[str, Any]:
    """A client of another uid, which waits and arms a change of server; it takes memory once it is let in."""
    one = director.daemon(daemon)
    waiting = tenants.Tenant(
        kind="waiting",
        name="waiting",
        arguments=("/home/other/.venv/bin/python3", "train.py"),
        memory_mib={one.options.first_device: memory_mib},
        daemon=daemon,
        uid=uid,
    )
    return {"pid": director.add(waiting, wait=0.3)}


def visitor(
    director: Director, *, name: str, memory_mib: int, away: float, stay: float, seed: int = 0, **looks: object
) -> None:
    """A foreign tenant that comes and goes: away and there for the given seconds, by up to a fifth more or less."""
    chance = random.Random(seed)  # noqa: S311 (a demonstration that repeats itself)

    def come() -> None:
        mib = round(memory_mib * chance.uniform(0.8, 1.2))
        wait = tenants.JOIN_PATIENCE
        pid = _tenant(director, kind="foreign", name=name, memory_mib=mib, wait=wait, looks=dict(looks))["pid"]
        director.later(stay * chance.uniform(0.8, 1.2), lambda: go(pid))

    def go(pid: int) -> None:
        if pid in director.places:
            director.remove(pid)
        director.later(away * chance.uniform(0.8, 1.2), come)

    director.later(away * chance.uniform(0.8, 1.2), come)
