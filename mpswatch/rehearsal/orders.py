"""What a stack can be told (tell.py says it in words), done by the director."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from mpswatch.rehearsal import commands, processes, smi, state, tenants
from mpswatch.rehearsal.director import Daemon, Director
from mpswatch.rehearsal.layout import RehearsalError

LIES = frozenset({"", "wrong_clients", "protocol3"}) | commands.ENDING
ATTACHING = frozenset({"", "silent", "late", "unlisted", "twice", "other_pid"}) | frozenset(commands.ATTACH_REPLIES)


def obey(director: Director, order: dict[str, Any]) -> dict[str, Any]:
    """Carry out one order; its reply is what the order's words in tell.py promise."""
    details = dict(order)
    word = details.pop("do", None)
    if word not in _ORDERS:
        raise RehearsalError(f"{word!r} is none of the orders {', '.join(sorted(_ORDERS))}")
    return _ORDERS[word](director, **details) or {}


def _one_of(value: str, known: frozenset[str], what: str) -> str:
    if value not in known:
        raise RehearsalError(f"{value!r} is none of the {what}: {', '.join(sorted(known - {''}))}")
    return value


def _fault(daemon: Daemon, **changes: object) -> None:
    state.write(daemon.paths.faults, msgspec.structs.replace(state.faults(daemon.paths), **changes))


def _until(done: Callable[[], object], what: str, seconds: float = 5.0) -> None:
    until = time.monotonic() + seconds
    while not done():
        if time.monotonic() > until:
            raise RehearsalError(f"{what} did not come about within {seconds} s")
        time.sleep(0.002)


# --- daemons and servers -------------------------------------------------------------------------------


def _daemon(director: Director, *, name: str, start: bool = True, **options: object) -> dict[str, Any]:
    if name in director.daemons:
        raise RehearsalError(f"there is a daemon {name!r} already")
    if name in {"bin", "tell", "smi"} or "/" in name or not name:
        raise RehearsalError(f"{name!r} cannot be a daemon's name")
    chosen = msgspec.convert(options, state.Options)
    if any(not 0 <= device < director.devices for device in chosen.devices):
        raise RehearsalError(f"devices {chosen.devices} are not below {director.devices}")
    paths = director.layout.daemon(name)
    director.daemons[name] = Daemon(paths=paths, options=chosen)
    if start:
        director.start_daemon(name)
    return {"pipe_directory": str(paths.pipe), "log_directory": str(paths.log), "pid": director.daemons[name].pid}


def _hang(director: Director, *, daemon: str = "default") -> None:
    one = director.daemon(daemon)
    if one.pid is None:
        raise RehearsalError(f"the daemon {daemon!r} is not running")
    processes.tell(one.pid, signal.SIGSTOP)
    one.frozen = True


def _resume(director: Director, *, daemon: str = "default") -> None:
    one = director.daemon(daemon)
    if one.pid is not None:
        processes.tell(one.pid, signal.SIGCONT)
        one.frozen = False


def _die(director: Director, *, what: str = "daemon", daemon: str = "default") -> dict[str, Any]:
    one = director.daemon(daemon)
    server = state.server(one.paths)
    if _one_of(what, frozenset({"daemon", "server"}), "parts that can die") == "server":
        if server is None:
            raise RehearsalError(f"the daemon {daemon!r} has no server")
        processes.end(_checked(server.pid, one))
        _until(lambda: not state.alive(server.pid), "the end of the server")
        return {"pid": server.pid}
    pid = one.pid
    if pid is None:
        raise RehearsalError(f"the daemon {daemon!r} is not running")
    processes.end(pid)

    def buried() -> bool:
        director.bury()
        return one.pid is None

    _until(buried, "the end of the daemon")
    if server is not None:
        _until(lambda: not state.alive(server.pid), "the end of the server")
    return {"pid": pid}


def _checked(server: int, daemon: Daemon) -> int:
    """The server's pid, provided that it is the control daemon's child: the file that names it is its own."""
    parent = int(Path(f"/proc/{server}/stat").read_bytes().rpartition(b")")[2].split()[1])
    if parent != daemon.pid:
        raise RehearsalError(f"process {server} is not this daemon's server")
    return server


def _start(director: Director, *, daemon: str = "default", **options: object) -> dict[str, Any]:
    one = director.daemon(daemon)
    if options:
        known = {**msgspec.structs.asdict(one.options), **options}
        one.options = msgspec.convert(known, state.Options)
    director.start_daemon(daemon)
    return {"pid": one.pid}


def _restart(director: Director, *, daemon: str = "default", again: bool = False, **options: object) -> dict[str, Any]:
    """Daemon and server anew; with `again` the services that were there come back, as new processes."""
    one = director.daemon(daemon)
    services = _services(director, daemon)
    if one.pid is not None:
        _die(director, what="daemon", daemon=daemon)
    _gone(director, [pid for pid, _ in services])
    reply = _start(director, daemon=daemon, **options)
    pids = director.add_all([tenant for _, tenant in services], wait=tenants.JOIN_PATIENCE) if again else []
    return {**reply, "services": pids}


def _replace_server(director: Director, *, daemon: str = "default", again: bool = True) -> dict[str, Any]:
    """Another server for the same daemon; the services that were there come back, as new processes."""
    one = director.daemon(daemon)
    services = _services(director, daemon)
    old = _die(director, what="server", daemon=daemon)["pid"]
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

    _until(buried, "the end of the services")


# --- tenants -------------------------------------------------------------------------------------------


def _service(director: Director, *, name: str, wait: float = tenants.JOIN_PATIENCE, **looks: object) -> dict[str, Any]:
    return _tenant(director, kind="service", name=name, memory_mib=636, wait=wait, looks=looks)


def _foreign(
    director: Director, *, name: str, memory_mib: object = 658, wait: float = tenants.JOIN_PATIENCE, **looks: object
) -> dict[str, Any]:
    return _tenant(director, kind="foreign", name=name, memory_mib=memory_mib, wait=wait, looks=looks)


def _tenant(
    director: Director, *, kind: str, name: str, memory_mib: object, wait: float, looks: dict[str, Any]
) -> dict[str, Any]:
    number = looks.pop("count", 1)
    if looks.pop("escaped", False):
        kind = "escaped"
    memory = looks.pop("memory_mib", memory_mib)
    daemon = looks.pop("daemon", "default")
    devices = looks.pop("devices", None) or [director.daemon(daemon).options.devices[0]]
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


def _remove(director: Director, *, pid: int) -> None:
    director.remove(pid)


def _ghost(director: Director, *, pid: int, memory_mib: int = 300, device: int = 0, name: str = "[Not Found]") -> None:
    director.ghosts.append(smi.Row(pid=pid, device=device, memory_mib=memory_mib, mps_client=False, name=name))


def _fill(director: Director, *, leave: int = 0, daemon: str = "default") -> dict[str, Any]:
    one = director.daemon(daemon)
    server = state.server(one.paths)
    free = one.options.context_limit - (len(server.clients) if server else 0) - leave
    filler = tenants.Tenant(
        kind="filler",
        name="filler",
        arguments=("/srv/filler/.venv/bin/python3", "/srv/filler/main.py"),
        memory_mib={one.options.devices[0]: 300},
        daemon=daemon,
        uid=server.uid if server else None,
    )
    return {"pids": director.add_all([filler] * max(free, 0), wait=10.0)}


def _drain(director: Director) -> None:
    for pid, place in list(director.places.items()):
        if place.tenant.kind in {"filler", "waiting"}:
            director.remove(pid)


def _queue(director: Director, *, uid: int, daemon: str = "default") -> dict[str, Any]:
    waiting = tenants.Tenant(
        kind="waiting",
        name="waiting",
        arguments=("/home/other/.venv/bin/python3", "train.py"),
        memory_mib={},
        daemon=daemon,
        uid=uid,
    )
    return {"pid": director.add(waiting, wait=0.3)}


def _visitor(
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


# --- faults --------------------------------------------------------------------------------------------


def _lie(director: Director, *, how: str, text: str = "", daemon: str = "default") -> None:
    _fault(director.daemon(daemon), lie=_one_of(how, LIES, "lies"), text=text)


def _state(director: Director, *, state: str = "", daemon: str = "default") -> None:
    _fault(director.daemon(daemon), server_state=state)


def _attach(
    director: Director, *, how: str = "", seconds: float = 1.0, pid: int | None = None, daemon: str = "default"
) -> None:
    one = director.daemon(daemon)
    shown = pid if pid is not None else (one.pid or 0)
    _fault(one, attach=_one_of(how, ATTACHING, "ways to attach"), seconds=float(seconds), pid=shown)


def _slow(director: Director, *, factor: float = 1.0, daemon: str = "default") -> None:
    _fault(director.daemon(daemon), slow=float(factor))


def _break(director: Director, *, daemon: str = "default") -> dict[str, Any]:
    """A GPU fault too short to be polled: a busy service dies of it, and server.log says so."""
    one = director.daemon(daemon)
    server = state.server(one.paths)
    if server is None:
        raise RehearsalError(f"the daemon {daemon!r} has no server")
    before = len(state.unsafe_ends(one.paths))
    processes.tell(_checked(server.pid, one), signal.SIGUSR1)
    _until(lambda: len(state.unsafe_ends(one.paths)) > before, "the fault")
    return {"neighbour": state.unsafe_ends(one.paths)[-1].neighbour}


def _smi(director: Director, *, how: str = "") -> None:
    director.smi_how = _one_of(how, smi.WAYS, "ways of nvidia-smi")
    if how != "hang":
        director.unhang_smi()


def _gpu(director: Director, *, utilization: int | None = None, used_by_nobody_mib: int | None = None) -> None:
    if utilization is not None:
        director.utilization = utilization
    if used_by_nobody_mib is not None:
        director.used_by_nobody_mib = used_by_nobody_mib


def _honest(director: Director) -> None:
    """Everything right again, but for who died."""
    for name, daemon in director.daemons.items():
        state.write(daemon.paths.faults, state.Faults())
        _resume(director, daemon=name)
    director.ghosts.clear()
    _smi(director)


def _status(director: Director) -> dict[str, Any]:
    director.bury()
    return {
        "director": director.pid,
        "daemons": {name: _daemon_status(daemon) for name, daemon in director.daemons.items()},
        "tenants": [{"pid": pid, **_told(place.tenant)} for pid, place in director.places.items()],
        "departed": director.departed,
        "nvidia_smi": {"questions": director.smi_questions, "how": director.smi_how},
    }


def _told(tenant: tenants.Tenant) -> dict[str, Any]:
    return {
        "kind": tenant.kind,
        "name": tenant.name,
        "daemon": tenant.daemon,
        "uid": tenant.uid,
        "cgroup": tenant.cgroup,
        "memory_mib": {str(device): mib for device, mib in tenant.memory_mib.items()},
    }


def _daemon_status(daemon: Daemon) -> dict[str, Any]:
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


_ORDERS: dict[str, Callable[..., dict[str, Any] | None]] = {
    "daemon": _daemon,
    "hang": _hang,
    "resume": _resume,
    "die": _die,
    "start": _start,
    "restart": _restart,
    "replace_server": _replace_server,
    "service": _service,
    "foreign": _foreign,
    "remove": _remove,
    "ghost": _ghost,
    "fill": _fill,
    "drain": _drain,
    "queue": _queue,
    "visitor": _visitor,
    "lie": _lie,
    "state": _state,
    "attach": _attach,
    "slow": _slow,
    "break": _break,
    "smi": _smi,
    "gpu": _gpu,
    "honest": _honest,
    "status": _status,
}
