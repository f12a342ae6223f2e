"""The way out of a cell: the child is asked to leave, and seen gone. Nothing else can be done to it.

One that ended with work in flight would take its neighbours along (mps-facts 1), so a child that does not leave is
stuck: it is reported and left alone. Every wait here is bounded, so the wish to stop is not heeded.
"""

from __future__ import annotations

import time

from mpswatch.documents import Reason
from mpswatch.proc import ProcessGone
from mpswatch.sweep.bench import Bench, Left, Seen
from mpswatch.sweep.conversation import Babble, Ended, Late, Stopped
from mpswatch.sweep.membership import clients_of, pauses
from mpswatch.sweep.messages import Forked, Gone

# Between looks at a process in /proc, which cost nothing to anybody.
_OFTEN = 0.05


def leave(bench: Bench, seen: Seen) -> Left:
    """Let the child leave, watch it go, and read the daemon's list once more."""
    conversation, deadline = bench.conversation, time.monotonic() + bench.plan.drain_deadline
    if seen.never_forked:
        return _off_the_list(bench, seen, stuck=())
    if seen.gone is None:
        if not seen.failed_itself and not conversation.say({"bye": True}):
            conversation.launched.hang_up()
        _await_gone(bench, seen, deadline)
    if seen.gone is not None:
        return _off_the_list(bench, seen, stuck=())
    # The launcher is gone, out of step or silent: closing its lifeline closes the child's.
    conversation.launched.hang_up()
    return _off_the_list(bench, seen, stuck=_still_there(bench, seen, deadline))


def _await_gone(bench: Bench, seen: Seen, deadline: float) -> None:
    while seen.gone is None:
        heard = bench.conversation.hear(until=deadline, heed_stop=False)
        if isinstance(heard, Gone) and heard.order == seen.order:
            seen.gone = heard
        elif isinstance(heard, Forked) and heard.order == seen.order:
            seen.forked = heard
        elif isinstance(heard, Late | Ended | Babble | Stopped):
            return


def _still_there(bench: Bench, seen: Seen, deadline: float) -> tuple[int, ...]:
    """Without the launcher's word for it: who of ours still lives when the deadline passes, as far as we know."""
    launched, pause = bench.conversation.launched, pauses()
    while True:
        child = _child(bench, seen)
        if child is None and launched.exited() is not None:
            return ()
        if time.monotonic() >= deadline:
            # The launcher waits for its children, so while it is there, one of them may be.
            return (child if child is not None else launched.pid,)
        time.sleep(min(pause(), _OFTEN))


def _child(bench: Bench, seen: Seen) -> int | None:
    """The child's pid as we number it, while it lives and is ours."""
    pid = _pid(seen)
    if pid is None:
        return None
    try:
        facts = bench.ports.processes.facts(pid)
    except ProcessGone:
        return None
    if seen.member is not None and facts.start_ticks != seen.member.start_ticks:
        return None
    ours = bench.ports.runtime.is_ours(bench.conversation.launched, facts)
    return pid if ours and facts.state not in "ZX" else None


def _pid(seen: Seen) -> int | None:
    if seen.member is not None:
        return seen.member.pid
    return None if seen.forked is None else seen.forked.pid


def _off_the_list(bench: Bench, seen: Seen, *, stuck: tuple[int, ...]) -> Left:
    """The daemon's list after the cell: once our client is off it, or as it stands when that takes too long."""
    pid, until, pause = _pid(seen), time.monotonic() + bench.plan.join_deadline, pauses()
    while True:
        look = bench.ports.look_at_daemon()
        clients = clients_of(look)
        if clients is None:
            reason = look.up_reason or Reason.DAEMON_SILENT
            return Left(at=None, clients=None, reason=reason, stuck=stuck)
        if pid not in clients:
            at = time.monotonic() if seen.gone is not None else None
            return Left(at=at, clients=clients, reason=None, stuck=stuck)
        if stuck or time.monotonic() >= until:
            return Left(at=None, clients=clients, reason=None, stuck=stuck)
        time.sleep(pause())
