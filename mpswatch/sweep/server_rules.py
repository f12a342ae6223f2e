"""Which control daemon and server a client of ours may join: the part of the preflight that is about them."""

from __future__ import annotations

from mpswatch.documents import DaemonLook, Reason, ServerLook
from mpswatch.sweep.permit import Limits, Permit, Refusal


def doubt_daemon(look: DaemonLook) -> Refusal | None:
    """Whether the control daemon can be asked, in a protocol that we know."""
    if look.up_reason is Reason.PROTOCOL_UNSUPPORTED or (look.protocol or "").lstrip("vV").startswith("3"):
        return Refusal(
            reason=Reason.PROTOCOL_UNSUPPORTED,
            detail=f"the control daemon {look.name} speaks MPS protocol 3, which mpswatch does not measure under: there"
            " a namespace's percentage overrides a client's cap",
            remedy="start the control daemon without the opt-in to protocol 3",
        )
    if look.up is not True:
        silent = look.up_reason or Reason.DAEMON_SILENT
        return Refusal(
            reason=silent,
            detail=f"the control daemon {look.name} cannot be asked: {silent.value}{_said(look)}",
            remedy=_mend(look, silent),
        )
    if look.servers.value is None:
        reason = as_reason(look.servers.unknown_reason, Reason.DAEMON_SILENT)
        return Refusal(
            reason=reason,
            detail=f"the control daemon {look.name} did not say which servers it runs: {reason.value}{_said(look)}",
            remedy=_mend(look, reason),
        )
    return None


def _mend(look: DaemonLook, reason: Reason) -> str:
    """What to do, for each way in which a control daemon is not understood: a second one helps only where none is."""
    match reason:
        case Reason.DAEMON_ABSENT:
            return f"start nvidia-cuda-mps-control -d for {look.pipe_directory}, or correct the pipe directory"
        case Reason.CONTROL_PROGRAM_MISSING:
            return "install the driver's nvidia-cuda-mps-control, or name it in mps.control_program"
        case Reason.DAEMON_SILENT:
            return (
                f"look whether the control daemon of {look.pipe_directory} hangs or is stopped (its control.log, its"
                " state in ps); do not start a second one; a busy host may need a longer mps.deadline"
            )
        case Reason.DAEMON_NONSENSE:
            return (
                f"ask it by hand: echo get_server_list | CUDA_MPS_PIPE_DIRECTORY={look.pipe_directory}"
                " nvidia-cuda-mps-control; where that looks right, check mps.control_program, and report the answer"
            )
        case Reason.PERMISSION:
            return f"run mpswatch as a user who may use {look.pipe_directory}"
        case _:
            return "see `mpswatch doctor`"


def _said(look: DaemonLook) -> str:
    """What was seen, for a person: without it nonsense cannot be told from nonsense."""
    detail = look.servers.evidence.get("detail")
    return f" ({detail})" if detail else ""


def doubt_server(look: DaemonLook, limits: Limits, permitted: Permit | None) -> Refusal | None:
    """Whether its server is one, the same as before, of our uid, active, settled, and has room."""
    servers = look.servers.value or ()
    if not servers:
        return _no_server(look, limits, permitted)
    if len(servers) > 1:
        pids = ", ".join(str(server.pid) for server in servers)
        return Refusal(
            reason=Reason.SEVERAL_SERVERS,
            detail=f"the control daemon {look.name} lists several servers: {pids}",
            remedy="wait until one of them is gone: which of them a client would join is not known",
        )
    (server,) = servers
    return (
        _same(server, permitted)
        or _waited_for(look, server)
        or _user(server, limits)
        or _active(server)
        or _settled(server, limits, own=permitted is not None and permitted.own)
        or _room(server, limits)
    )


def _no_server(look: DaemonLook, limits: Limits, permitted: Permit | None) -> Refusal | None:
    if permitted is not None and permitted.server is not None:
        return Refusal(
            reason=Reason.SERVER_VANISHED,
            detail=f"the server {permitted.server.pid} of this sweep is gone",
            remedy=None,
        )
    if limits.stack_uid is not None and limits.stack_uid == limits.client_uid:
        return None
    if limits.stack_uid is not None:
        detail = f"and the stack's uid is {limits.stack_uid}, while the measuring client runs as {limits.client_uid}"
        remedy = f"run mpswatch as uid {limits.stack_uid}, or start one of the stack's services first"
    else:
        detail = f"and a sweep would create one for uid {limits.client_uid} and lock other users out"
        remedy = "start one of the stack's services first, or set sweep.stack_uid to the stack's uid"
    return Refusal(
        reason=Reason.NO_SERVER, detail=f"the control daemon {look.name} runs no server, {detail}", remedy=remedy
    )


def _same(server: ServerLook, permitted: Permit | None) -> Refusal | None:
    if server.start_ticks is None:
        return Refusal(
            reason=server.unknown.get("start_ticks", Reason.PROCESS_GONE),
            detail=f"the server {server.pid} has no process that can be seen in /proc",
            remedy="run mpswatch in the control daemon's pid namespace (the host's)",
        )
    if permitted is None or permitted.server is None:
        return None
    if (server.pid, server.start_ticks) != (permitted.server_pid, permitted.start_ticks):
        return Refusal(
            reason=Reason.SERVER_CHANGED,
            detail=f"the server was {permitted.server_pid} and is {server.pid} now",
            remedy="the next sweep measures under the new server, once it has settled",
        )
    return None


def _waited_for(look: DaemonLook, server: ServerLook) -> Refusal | None:
    """A server that somebody of another uid waits for ends at its first idle moment: a cell's end may be that."""
    waiting = look.waiting
    if waiting is None or server.multi_user or not (waiting.clients or waiting.shutdown_armed):
        return None
    uids = ", ".join(str(uid) for uid in sorted({client.uid for client in waiting.clients}))
    who = f"a client of uid {uids} waits" if uids else "a client of another uid has waited"
    return Refusal(
        reason=Reason.FOREIGN_CLIENT_WAITING,
        detail=f"{who} for the server {server.pid} to be shut down, which happens at its first idle moment",
        remedy="end that client and restart the MPS daemon when the stack may stand still: ending it alone does not"
        " call the shutdown off",
    )


def _user(server: ServerLook, limits: Limits) -> Refusal | None:
    if server.multi_user:
        return None
    if server.uid is None:
        return Refusal(
            reason=server.unknown.get("uid", Reason.UID_MISMATCH),
            detail=f"whose server {server.pid} is, is not known, and a client of another uid would shut it down",
            remedy="run mpswatch where the server's process can be seen in /proc",
        )
    if server.uid != limits.client_uid:
        return Refusal(
            reason=Reason.UID_MISMATCH,
            detail=f"the server {server.pid} serves uid {server.uid}, the measuring client runs as {limits.client_uid}:"
            " it would be queued, and the daemon would shut the server down",
            remedy=f"run mpswatch as uid {server.uid}, or the control daemon with -multiuser-server",
        )
    return None


def _active(server: ServerLook) -> Refusal | None:
    if server.server_state == "ACTIVE":
        return None
    if server.server_state is None:
        reason = server.unknown.get("server_state", Reason.SERVER_NOT_ACTIVE)
        return Refusal(reason=reason, detail=f"the state of server {server.pid} is not known: {reason.value}")
    fault = "FAULT" in server.server_state.upper()
    return Refusal(
        reason=Reason.SERVER_FAULT if fault else Reason.SERVER_NOT_ACTIVE,
        detail=f"the server {server.pid} is {server.server_state}, not ACTIVE",
        remedy="look into the MPS log directory's server.log" if fault else "wait until it is ACTIVE",
    )


def _settled(server: ServerLook, limits: Limits, *, own: bool) -> Refusal | None:
    if own or limits.settle <= 0:
        return None
    if server.age_seconds is None:
        return Refusal(
            reason=server.unknown.get("age_seconds", Reason.SERVER_UNSETTLED),
            detail=f"how old server {server.pid} is, is not known",
        )
    if server.age_seconds < limits.settle:
        return Refusal(
            reason=Reason.SERVER_UNSETTLED,
            detail=f"the server {server.pid} is {server.age_seconds:.0f} s old; sweep.settle is {limits.settle:.0f} s",
            remedy=f"wait {limits.settle - server.age_seconds:.0f} s",
        )
    return None


def _room(server: ServerLook, limits: Limits) -> Refusal | None:
    if server.clients is None:
        reason = server.unknown.get("clients", Reason.DAEMON_NONSENSE)
        return Refusal(reason=reason, detail=f"the clients of server {server.pid} are not known: {reason.value}")
    limit = limits.context_limit if server.context_limit is None else server.context_limit
    # A client may have several contexts, and the limit is of contexts.
    used = max(len(server.clients), len(server.contexts or ()))
    if used + 1 > limit - limits.headroom:
        return Refusal(
            reason=Reason.SERVER_FULL,
            detail=f"the server {server.pid} has {used} of {limit} places taken, and {limits.headroom} must stay free",
            remedy="wait until clients have left, or lower sweep.headroom",
        )
    return None


def as_reason(text: str | None, otherwise: Reason) -> Reason:
    """An envelope's reason, which is a `Reason`'s value wherever this program wrote it."""
    try:
        return Reason(text) if text is not None else otherwise
    except ValueError:
        return otherwise
