"""Proving that the client is managed: by the daemon's own list, never by what the client says of itself.

Identity is the pid that joined the list, whose NSpid line in /proc ends in the pid that the child reports, in the
launcher's session. Speed cannot prove it: outside MPS the same program runs as fast (mps-facts 4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mpswatch.documents import DaemonLook, Reason, ServerLook
from mpswatch.proc import Processes, ProcessFacts, ProcessGone

FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.5


def pauses() -> Callable[[], float]:
    """Seconds to wait between looks: each costs the daemon's log 320 bytes a question, so they grow apart."""
    pause = FIRST_PAUSE / 2

    def following() -> float:
        nonlocal pause
        pause = min(pause * 2, _LONGEST_PAUSE)
        return pause

    return following


@dataclass(frozen=True, kw_only=True)
class Member:
    """Our client as the daemon lists it."""

    pid: int
    start_ticks: int
    server: ServerLook
    namespaced: bool
    joined: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class NotProven:
    """Why this look does not show our client on the permitted server.

    `final` means that looking again cannot help. `joined` are the pids that are new on the list, None where the
    daemon did not say.
    """

    reason: Reason
    detail: str
    joined: tuple[int, ...] | None
    final: bool = False


def find(
    look: DaemonLook,
    *,
    before: tuple[int, ...],
    server_pid: int | None,
    start_ticks: int | None,
    reported_pid: int,
    processes: Processes,
    is_ours: Callable[[ProcessFacts], bool],
) -> Member | NotProven:
    """Our client among those that joined since `before`, on the server (pid, start ticks) that was permitted.

    `server_pid` None: our client was permitted to create the server, so whichever there is now is it.
    """
    server = _only_server(look, server_pid, start_ticks)
    if isinstance(server, NotProven):
        return server
    clients = server.clients
    if clients is None:
        reason = server.unknown.get("clients", Reason.DAEMON_NONSENSE)
        return NotProven(reason=reason, detail=f"the clients of server {server.pid} are not known", joined=None)
    joined = tuple(sorted(set(clients) - set(before)))
    facts = [found for found in (_facts(pid, processes) for pid in joined) if found is not None]
    ours = [found for found in facts if is_ours(found)]
    if len(ours) == 1 and ours[0].namespace_pids[-1] == reported_pid:
        (found,) = ours
        return Member(
            pid=found.pid,
            start_ticks=found.start_ticks,
            server=server,
            namespaced=len(found.namespace_pids) > 1,
            joined=joined,
        )
    reason = Reason.IDENTITY_AMBIGUOUS
    if len(ours) > 1:
        detail = f"several processes of ours joined the list: {', '.join(str(found.pid) for found in ours)}"
    elif ours:
        detail = f"process {ours[0].pid} of ours joined the list, but the client calls itself {reported_pid}"
    elif len(facts) < len(joined):
        detail = (
            "a process joined the list that is not to be seen in /proc: is the control daemon in this pid namespace?"
        )
    else:
        reason, detail = Reason.NOT_MANAGED, "the client has a context and is not in the daemon's list"
    return NotProven(reason=reason, detail=detail, joined=joined, final=len(ours) > 1)


def still(look: DaemonLook, member: Member, processes: Processes) -> NotProven | None:
    """None while `member` is on the same server's list and is the same process; else what is wrong."""
    server = _only_server(look, member.server.pid, member.server.start_ticks)
    if isinstance(server, NotProven):
        return server
    if server.clients is None:
        reason = server.unknown.get("clients", Reason.DAEMON_NONSENSE)
        return NotProven(reason=reason, detail=f"the clients of server {server.pid} are not known", joined=None)
    if member.pid not in server.clients or processes.start_ticks(member.pid) != member.start_ticks:
        return NotProven(
            reason=Reason.NOT_MANAGED,
            detail=f"the client {member.pid} left the daemon's list as it measured",
            joined=(),
        )
    return None


def clients_of(look: DaemonLook) -> tuple[int, ...] | None:
    """Every client that the daemon lists, ascending; None where it did not say for all of its servers."""
    if look.servers.value is None:
        return None
    found: set[int] = set()
    for server in look.servers.value:
        if server.clients is None:
            return None
        found |= set(server.clients)
    return tuple(sorted(found))


def _only_server(look: DaemonLook, pid: int | None, start_ticks: int | None) -> ServerLook | NotProven:
    servers = look.servers.value
    if servers is None:
        return NotProven(
            reason=_unknown_reason(look), detail=f"the control daemon {look.name} does not answer", joined=None
        )
    if pid is None:
        if not servers:
            return NotProven(reason=Reason.NOT_MANAGED, detail="no server was started for the client", joined=())
        if len(servers) == 1:
            return servers[0]
    elif not servers:
        return NotProven(reason=Reason.SERVER_VANISHED, detail=f"the server {pid} is gone", joined=(), final=True)
    elif len(servers) == 1 and (servers[0].pid, servers[0].start_ticks) == (pid, start_ticks):
        return servers[0]
    listed = ", ".join(str(server.pid) for server in servers)
    return NotProven(
        reason=Reason.SERVER_CHANGED,
        detail=f"the permitted server is {'a new one' if pid is None else pid}, and the daemon lists {listed} now",
        joined=None,
        final=True,
    )


def _unknown_reason(look: DaemonLook) -> Reason:
    if look.up_reason is not None:
        return look.up_reason
    try:
        return Reason(look.servers.unknown_reason or "")
    except ValueError:
        return Reason.DAEMON_SILENT


def _facts(pid: int, processes: Processes) -> ProcessFacts | None:
    try:
        return processes.facts(pid)
    except ProcessGone:
        return None
