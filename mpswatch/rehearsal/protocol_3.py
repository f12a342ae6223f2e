"""What a control daemon of protocol 3 answers, as NVIDIA documents it ("MPS v3 Interface").

Never compared with a real one. The daemon has the one server that its clients' uid was given (`uid_N`), all of it in
the namespace `default`. What the documentation does not show is ours: the header's last two names for clients, and the
words for a command that is none.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mpswatch.rehearsal import gpus, state
from mpswatch.rehearsal.commands import command_of

SERVERS = ("name", "uid", "pid", "status", "pipe-directory", "allowed-devices", "context-ids")
CLIENTS = ("pid", "server", "device", "namespace", "cmd")
MODULES = frozenset({"server", "namespace", "client", "device", "sm-partition", "feature", "memacct", "context-share"})
ASKING = frozenset({"list", "get", "describe", "help"})
"""Verbs that change nothing: any other that arrives is counted."""


def server_name(uid: int) -> str:
    """The name of the server that a uid's clients are given without asking for one."""
    return f"uid_{uid}"


def changes(command: str) -> bool:
    """Whether a command would change something, or end the daemon."""
    words = command.split()
    return command.startswith("-") or (len(words) > 1 and words[0] in MODULES and words[1] not in ASKING)


def reply(command: str, *, pipe: Path, devices: tuple[int, ...], server: state.ServerState | None, said: str) -> str:
    """The answer to `command`; `said` is what was told to be the server's state."""
    module, _, rest = command.partition(" ")
    verb, *options = rest.split() or [""]
    form = next((word.partition("=")[2] for word in options if word.startswith("--format=")), "table")
    rows: list[tuple[object, ...]]
    if (module, verb) == ("server", "list"):
        rows = [_server(server, pipe, devices, said)] if server else []
        return _table(SERVERS, rows, form)
    if (module, verb) == ("client", "list"):
        clients = server.clients if server else []
        rows = [
            (pid, server_name(server.uid if server else 0), client.device, "default", command_of(pid))
            for client in clients
            for pid in client.listed
        ]
        return _table(CLIENTS, rows, form)
    return f'Unknown command "{command}"\n'


def _server(server: state.ServerState, pipe: Path, devices: tuple[int, ...], said: str) -> tuple[object, ...]:
    name = server_name(server.uid)
    allowed = ",".join(gpus.uuid(index) for index in devices)
    return (name, server.uid, server.pid, said or "Ready", pipe / name, allowed, "-")


def _table(header: tuple[str, ...], rows: Iterable[tuple[object, ...]], form: str) -> str:
    kind, _, bare = form.partition(",")
    lines = [tuple(map(str, row)) for row in rows]
    if kind == "csv":
        shown = lines if bare == "noheader" else [header, *lines]
        return "".join(",".join(line) + "\n" for line in shown)
    shown = lines if bare == "noheader" else [tuple(word.upper() for word in header), *lines]
    return "".join(" ".join(line) + "\n" for line in shown)
