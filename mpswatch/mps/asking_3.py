"""Asking a control daemon of protocol 3 who its servers and clients are. Never run on a real one (grammar_3).

It takes no script: each question is a run of the control program, so a look is two of them, and two more when a client
names a server that the first list does not have.
"""

from __future__ import annotations

from pathlib import Path

from mpswatch.documents import Reason, ServerLook
from mpswatch.errors import MpswatchError
from mpswatch.mps import commands, grammar, grammar_3
from mpswatch.mps.lines import OtherProtocol, ReplyError
from mpswatch.mps.program import environment_of, said_by
from mpswatch.mps.servers import server_look
from mpswatch.proc import Processes


def servers_of(
    pipe_directory: Path, program: str, until: float, *, processes: Processes, simulated: bool, shown: str
) -> tuple[tuple[ServerLook, ...], tuple[str, ...]]:
    """The servers that run, with their clients, and the names of those that have no process.

    `shown` is what tells that the daemon speaks protocol 3. An answer that is not understood is `OtherProtocol`.
    """
    try:
        servers, clients = _lists(pipe_directory, program, until)
    except ReplyError as error:
        if error.reason is not Reason.DAEMON_NONSENSE:
            raise
        raise OtherProtocol(f"{shown}; {error.detail}", protocol="3") from None
    running = tuple(
        _server(server, server.pid, clients, processes, simulated=simulated)
        for server in servers
        if server.pid is not None
    )
    return running, tuple(server.name for server in servers if server.pid is None)


def _lists(
    pipe_directory: Path, program: str, until: float
) -> tuple[tuple[grammar_3.NamedServer, ...], tuple[grammar_3.NamedClient, ...]]:
    strangers: set[str] = set()
    for _ in range(2):  # a server that came between the two questions is on the list the next time
        servers = grammar_3.servers(_ask("server list", pipe_directory, program, until))
        clients = grammar_3.clients(_ask("client list", pipe_directory, program, until))
        strangers = {client.server for client in clients} - {server.name for server in servers if server.pid}
        if not strangers:
            return servers, clients
    raise MpswatchError(
        Reason.SERVER_CHANGED, f"clients of servers that are not listed: {', '.join(sorted(strangers))}"
    )


def _ask(question: str, pipe_directory: Path, program: str, until: float) -> bytes:
    # It follows the protocol of the daemon that runs; the variable is for the moment after that one has ended.
    environment = {**environment_of(pipe_directory), "CUDA_MPS_PROTOCOL_VERSION": "3"}
    return said_by(program, until=until, environment=environment, arguments=commands.arguments(question))


def _server(
    server: grammar_3.NamedServer,
    pid: int,
    clients: tuple[grammar_3.NamedClient, ...],
    processes: Processes,
    *,
    simulated: bool,
) -> ServerLook:
    mine = tuple(sorted({client.pid for client in clients if client.server == server.name}))
    return server_look(
        pid,
        reply=grammar.ServerReply(clients=mine, state=server.state),
        contexts=None,
        contexts_reason=Reason.NOT_SUPPORTED,
        processes=processes,
        simulated=simulated,
        named=server,
    )
