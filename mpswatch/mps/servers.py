"""What /proc says of an MPS server: whose it is, since when, and whether it serves every user."""

from __future__ import annotations

from mpswatch.documents import Context, Reason, ServerLook
from mpswatch.mps.grammar import ServerReply
from mpswatch.mps.grammar_3 import NamedServer
from mpswatch.mps.limits import of_a_server
from mpswatch.proc import Processes, ProcessFacts, ProcessGone

SERVER_COMMAND = "nvidia-cuda-mps"
"""How a server's command name begins; the kernel keeps 15 characters of `nvidia-cuda-mps-server`."""

MULTI_USER_FLAG = "-multiuser-server"


def server_look(
    pid: int,
    *,
    reply: ServerReply | None,
    contexts: tuple[Context, ...] | None,
    contexts_reason: Reason | None,
    processes: Processes,
    simulated: bool,
    named: NamedServer | None = None,
) -> ServerLook:
    """Join a server's lines of the reply with its process. `reply` is None when it was not asked about.

    `named` is what protocol 3 says of it: its owner is the one whose clients it serves. Whether that is everybody, no
    documented flag of the process tells.
    """
    unknown: dict[str, Reason] = {"context_limit": Reason.NOT_SUPPORTED}  # no command of either protocol tells it
    clients, state = (reply.clients, reply.state) if reply else (None, None)
    missing = Reason.SERVER_VANISHED if reply else Reason.SERVER_CHANGED
    if clients is None:
        unknown["clients"] = missing
    if state is None:
        unknown["server_state"] = missing
    if contexts is None:
        unknown["contexts"] = contexts_reason or Reason.NOT_RECORDED
    limits, untold = of_a_server(reply, named=named is not None)
    unknown |= untold

    facts, reason = _facts(pid, processes, simulated=simulated)
    age = None if facts is None else processes.age_seconds(facts)
    uid = named.uid if named else facts.uid if facts else None
    multi_user = None if named or facts is None or not facts.arguments else MULTI_USER_FLAG in facts.arguments
    if facts is None:
        unknown |= dict.fromkeys(("start_ticks", "age_seconds", "uid", "multi_user"), reason)
    else:
        if age is None:
            unknown["age_seconds"] = Reason.NOT_SUPPORTED
        if uid is None:
            unknown["uid"] = Reason.PERMISSION
        if multi_user is None:  # a zombie has no arguments any more
            unknown["multi_user"] = Reason.SERVER_VANISHED
    if named:
        unknown["multi_user"] = Reason.NOT_SUPPORTED
        unknown.pop("uid", None)
    return ServerLook(
        pid=pid,
        name=named.name if named else None,
        start_ticks=facts.start_ticks if facts else None,
        age_seconds=age,
        uid=uid,
        multi_user=multi_user,
        server_state=state,
        clients=clients,
        contexts=None if contexts is None else tuple(row for row in contexts if row.server_pid == pid),
        active_thread_percentage=limits.active_thread_percentage,
        memory_limits=limits.memory,
        unknown=unknown,
    )


def _facts(pid: int, processes: Processes, *, simulated: bool) -> tuple[ProcessFacts | None, Reason]:
    try:
        facts = processes.facts(pid)
    except ProcessGone as error:
        gone = error.reason is Reason.PROCESS_GONE
        return None, Reason.SERVER_VANISHED if gone else error.reason
    # A control daemon in another pid namespace lists numbers that are somebody else's here. A rehearsal's
    # server is any program.
    if not simulated and not facts.command.startswith(SERVER_COMMAND):
        return None, Reason.IDENTITY_AMBIGUOUS
    return facts, Reason.SERVER_VANISHED
