"""Orders to control daemons and servers (tell.py says them in words)."""

from __future__ import annotations

import signal
from typing import Any

import msgspec

from mpswatch.rehearsal import processes, state, tenants
from mpswatch.rehearsal.director import Director
from mpswatch.rehearsal.layout import RehearsalError
from mpswatch.rehearsal.orders.checks import checked_server, one_of, until_true
from mpswatch.rehearsal.scene import Daemon


def create(director: Director, *, name: str, **options: object) -> dict[str, Any]:
    """A control daemon more, started."""
    if name in director.daemons:
        raise RehearsalError(f"there is a daemon {name!r} already")
    if name in {"bin", "tell", "smi"} or "/" in name or not name:
        raise RehearsalError(f"{name!r} cannot be a daemon's name")
    chosen = msgspec.convert(options, state.Options)
    if any(not 0 <= device < director.devices for device in chosen.devices):
        raise RehearsalError(f"devices {chosen.devices} are not below {director.devices}")
    paths = director.layout.daemon(name)
    director.daemons[name] = Daemon(paths=paths, options=chosen)
    director.start_daemon(name)
    return {"pipe_directory": str(paths.pipe), "log_directory": str(paths.log), "pid": director.daemons[name].pid}


def hang(director: Director, *, daemon: str = "default") -> None:
    """Freeze the control daemon: it answers nobody, and its server goes on."""
    one = director.daemon(daemon)
    if one.pid is None:
        raise RehearsalError(f"the daemon {daemon!r} is not running")
    processes.tell(one.pid, signal.SIGSTOP)
    one.frozen = True


def resume(director: Director, *, daemon: str = "default") -> None:
    """Let a frozen control daemon go on."""
    one = director.daemon(daemon)
    if one.pid is not None:
        processes.tell(one.pid, signal.SIGCONT)
        one.frozen = False


def die(director: Director, *, what: str = "daemon", daemon: str = "default") -> dict[str, Any]:
    """Kill the control daemon (its server ends with it) or the server alone."""
    one = director.daemon(daemon)
    server = state.server(one.paths)
    if one_of(what, frozenset({"daemon", "server"}), "parts that can die") == "server":
        if server is None:
            raise RehearsalError(f"the daemon {daemon!r} has no server")
        processes.end(checked_server(server.pid, one))
        until_true(lambda: not state.alive(server.pid), "the end of the server")
        return {"pid": server.pid}
    pid = one.pid
    if pid is None:
        raise RehearsalError(f"the daemon {daemon!r} is not running")
    processes.end(pid)

    def buried() -> bool:
        director.bury()
        return one.pid is None

    until_true(buried, "the end of the daemon")
    if server is not None:
        until_true(lambda: not state.alive(server.pid), "the end of the server")
    return {"pid": pid}


def start(director: Director, *, daemon: str = "default", **options: object) -> dict[str, Any]:
    """Start a dead control daemon, as before but for `options`."""
    one = director.daemon(daemon)
    if options:
        known = {**msgspec.structs.asdict(one.options), **options}
        one.options = msgspec.convert(known, state.Options)
    director.start_daemon(daemon)
    return {"pid": one.pid}


def restart(director: Director, *, daemon: str = "default", again: bool = False, **options: object) -> dict[str, Any]:
    """Daemon and server anew; with `again` the services that were there come back, as new processes."""
    one = director.daemon(daemon)
    services = _services(director, daemon)
    if one.pid is not None:
        die(director, what="daemon", daemon=daemon)
    _gone(director, [pid for pid, _ in services])
    reply = start(director, daemon=daemon, **options)
    pids = director.add_all([tenant for _, tenant in services], wait=tenants.JOIN_PATIENCE) if again else []
    return {**reply, "services": pids}


def replace_server(director: Director, *, daemon: str = "default", again: bool = True) -> dict[str, Any]:
    """Another server for the same daemon; the services that were there come back, as new processes."""
    one = director.daemon(daemon)
    services = _services(director, daemon)
    old = die(director, what="server", daemon=daemon)["pid"]
    _gone(director, [pid for pid, _ in services])
    pids = director.add_all([tenant for _, tenant in services], wait=tenants.JOIN_PATIENCE) if again else []
    server = state.server(one.paths)
    return {"old": old, "new": server.pid if server else None, "services": pids}


def _services(director: Director, daemon: str) -> list[tuple[int, tenants.Tenant]]:
    return [
        (pid, place.tenant)
        for pid, place in director.places.items()
        if place.tenant.kind == "service" and place.tenant.daemon == daemon
    ]


def _gone(director: Director, pids: list[int]) -> None:
    def buried() -> bool:
        director.bury()
        return not any(pid in director.places for pid in pids)

    until_true(buried, "the end of the services")
