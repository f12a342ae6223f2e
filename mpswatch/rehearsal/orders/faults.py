"""Orders to go wrong (tell.py says them in words)."""

from __future__ import annotations

import signal
from typing import Any

import msgspec

from mpswatch.rehearsal import commands, processes, smi, state
from mpswatch.rehearsal.director import Director
from mpswatch.rehearsal.layout import RehearsalError
from mpswatch.rehearsal.orders.checks import checked_server, one_of, until_true
from mpswatch.rehearsal.orders.daemons import resume
from mpswatch.rehearsal.scene import Daemon

LIES = frozenset({"", "wrong_clients", "protocol3"}) | commands.ENDING
ATTACHING = frozenset({"", "silent", "late", "unlisted", "twice", "other_pid"}) | frozenset(commands.ATTACH_REPLIES)


def _fault(daemon: Daemon, **changes: object) -> None:
    state.write(daemon.paths.faults, msgspec.structs.replace(state.faults(daemon.paths), **changes))


def lie(director: Director, *, how: str, text: str = "", daemon: str = "default") -> None:
    """What the control daemon answers from now on."""
    _fault(director.daemon(daemon), lie=one_of(how, LIES, "lies"), text=text)


def set_state(director: Director, *, state: str = "", daemon: str = "default") -> None:
    """What get_server_status says from now on."""
    _fault(director.daemon(daemon), server_state=state)


def attach(
    director: Director, *, how: str = "", seconds: float = 1.0, pid: int | None = None, daemon: str = "default"
) -> None:
    """How measuring clients are received from now on."""
    one = director.daemon(daemon)
    shown = pid if pid is not None else (one.pid or 0)
    _fault(one, attach=one_of(how, ATTACHING, "ways to attach"), seconds=float(seconds), pid=shown)


def slow(director: Director, *, factor: float = 1.0, daemon: str = "default") -> None:
    """Measuring clients are told a share `factor` times smaller."""
    _fault(director.daemon(daemon), slow=float(factor))


def break_one(director: Director, *, daemon: str = "default") -> dict[str, Any]:
    """A GPU fault too short to be polled: a busy service dies of it, and server.log says so."""
    one = director.daemon(daemon)
    server = state.server(one.paths)
    if server is None:
        raise RehearsalError(f"the daemon {daemon!r} has no server")
    before = len(state.unsafe_ends(one.paths))
    processes.tell(checked_server(server.pid, one), signal.SIGUSR1)
    until_true(lambda: len(state.unsafe_ends(one.paths)) > before, "the fault")
    return {"neighbour": state.unsafe_ends(one.paths)[-1].neighbour}


def set_smi(director: Director, *, how: str = "") -> None:
    """How nvidia-smi answers from now on."""
    director.smi_how = one_of(how, smi.WAYS, "ways of nvidia-smi")
    if how != "hang":
        director.unhang_smi()


def set_gpu(director: Director, *, utilization: int | None = None, used_by_nobody_mib: int | None = None) -> None:
    """Device figures of every GPU."""
    if utilization is not None:
        director.utilization = utilization
    if used_by_nobody_mib is not None:
        director.used_by_nobody_mib = used_by_nobody_mib


def honest(director: Director) -> None:
    """Everything right again, but for who died."""
    for name, daemon in director.daemons.items():
        state.write(daemon.paths.faults, state.Faults())
        resume(director, daemon=name)
    director.ghosts.clear()
    set_smi(director)
