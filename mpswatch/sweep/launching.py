"""The launcher before its first cell and after its last: started, heard ready, let go. Nothing here can end it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from mpswatch.documents import Reason
from mpswatch.names import clip, printable
from mpswatch.proc import Processes, ProcessGone
from mpswatch.process.launch import Launched
from mpswatch.sweep.attempt import how_ended, said_reason
from mpswatch.sweep.conversation import Babble, Conversation, Ended, Late, Stopped
from mpswatch.sweep.log import LauncherLog
from mpswatch.sweep.membership import pauses
from mpswatch.sweep.messages import Failed, Ready
from mpswatch.sweep.permit import Limits, Refusal
from mpswatch.sweep.ports import Ports

_left_behind: list[Launched] = []
"""Launchers that had not ended when their sweep did: they are reaped when the next sweep starts."""


@contextlib.contextmanager
def let_go(launched: Launched, *, within: float) -> Iterator[None]:
    """Whatever happens within, the launcher's lifeline closes, and it gets `within` seconds to end."""
    try:
        yield
    finally:
        launched.hang_up()
        until, pause = time.monotonic() + within, pauses()
        while launched.exited() is None and time.monotonic() < until:
            time.sleep(min(pause(), 0.05))
        launched.close()
        if launched.exited() is None:
            _left_behind.append(launched)


def left_behind() -> frozenset[int]:
    """The launchers of earlier sweeps that still live; those that have ended since are reaped."""
    _left_behind[:] = [launched for launched in _left_behind if launched.exited() is None]
    return frozenset(launched.pid for launched in _left_behind)


def await_ready(conversation: Conversation, log: LauncherLog, *, until: float) -> Ready | Refusal:
    """The launcher's first words. Whatever else it says, no context was made: the sweep is refused."""
    heard = conversation.hear(until=until)
    if isinstance(heard, Ready):
        return heard
    words = log.last()
    said = f"; its last words: {words}" if words else ""
    match heard:
        case Failed():
            reason = said_reason(heard)
            detail = clip(printable(heard.detail or heard.reason) + said, 600)
        case Stopped():
            reason, detail = Reason.STOPPED, "the sweep was asked to end before its first cell"
        case Late():
            reason, detail = Reason.DEADLINE, f"the launcher was not ready in time{said}"
        case Ended(status=127):
            reason, detail = Reason.CLIENT_PROGRAM_MISSING, f"the launcher could not run{said}"
        case Ended(status=status):
            reason, detail = Reason.CLIENT_DIED, f"the launcher ended ({how_ended(status)}){said}"
        case Babble(detail=detail):
            reason = Reason.CLIENT_NONSENSE
        case _:
            reason = Reason.CLIENT_NONSENSE
            detail = f"the launcher said {type(heard).__name__.lower()} before it was ready"
    return Refusal(reason=reason, detail=detail, remedy=_REMEDIES.get(reason))


def doubt_ready(ready: Ready, launched: Launched, *, ports: Ports, limits: Limits, simulated: bool) -> Refusal | None:
    """Why this launcher must not be given a cell, None where it may."""
    if ready.lock != "held":
        return Refusal(reason=Reason.SWEEP_RUNNING, detail="the launcher does not hold the pipe directory's lock")
    if ready.torch is None and ready.numpy is None:
        return Refusal(reason=Reason.CLIENT_NONSENSE, detail="the launcher names no library that it computes with")
    if ready.torch is None and not simulated:
        return Refusal(
            reason=Reason.NOT_SUPPORTED,
            detail="the client computes with numpy on the CPU, and this is no rehearsal stack",
            remedy=_REMEDIES[Reason.CLIENT_IMPORT_FAILED],
        )
    return _doubt_uid(ports.runtime.launcher_pid(launched), ports.processes, limits)


def _doubt_uid(pid: int | None, processes: Processes, limits: Limits) -> Refusal | None:
    """A client of the wrong uid shuts the server down: ask the kernel, not the configuration."""
    if pid is None:
        return Refusal(
            reason=Reason.IDENTITY_AMBIGUOUS,
            detail="which process of this host the launcher is, cannot be told: nobody here holds the lock",
            remedy="run mpswatch in the host's pid namespace, with the same pipe directory as the client",
        )
    try:
        uid = processes.facts(pid).uid
    except ProcessGone:
        return Refusal(reason=Reason.CLIENT_DIED, detail="the launcher ended when it was ready")
    if uid == limits.client_uid:
        return None
    return Refusal(
        reason=Reason.UID_MISMATCH,
        detail=f"the launcher runs as uid {uid}, and the preflight was for uid {limits.client_uid}",
    )


_REMEDIES = {
    Reason.CLIENT_IMPORT_FAILED: "set sweep.client.python to a Python that has torch",
    Reason.CLIENT_PROGRAM_MISSING: "set sweep.client.python to a Python that has torch",
    Reason.SWEEP_RUNNING: "wait until the other sweep is done",
}
