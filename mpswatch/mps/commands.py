"""The only commands that mpswatch ever sends to a control daemon: they ask, and change nothing.

Never on this list: quit, set_*, start_server, shutdown_server, terminate_client. The last of these killed a
busy neighbour in 9 of 12 trials (docs/measurements/survival.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from mpswatch.proc import PID_MAX

ALLOWED = MappingProxyType(
    {
        "get_server_list": 0,
        "get_default_active_thread_percentage": 0,
        "get_client_list": 1,
        "get_server_status": 1,
        "ps": 0,
    }
)
"""Command and the number of server pids that it takes."""

ALLOWED_3 = MappingProxyType(
    {
        "server list": ("server", "list", "--format=csv"),
        "client list": ("client", "list", "--all", "--format=csv"),
    }
)
"""Under protocol 3: the question, and the arguments of the control program that ask it. Never create, set, delete,
terminate, enable, disable, --quit, nor an option that starts a daemon."""


class ForbiddenCommand(ValueError):  # noqa: N818 -- says what happened, and reads so where it is caught
    """Somebody tried to send a control daemon what is not on the list: a fault in mpswatch."""


def command(name: str, *servers: int) -> bytes:
    """One line for the control program, or `ForbiddenCommand`."""
    if ALLOWED.get(name) != len(servers):
        raise ForbiddenCommand(f"{name!r} with {len(servers)} arguments is not on the list of allowed commands")
    if not all(isinstance(pid, int) and 0 < pid <= PID_MAX for pid in servers):
        raise ForbiddenCommand(f"{servers} are not pids")
    return " ".join([name, *map(str, servers)]).encode("ascii") + b"\n"


def arguments(question: str) -> tuple[str, ...]:
    """The arguments that ask a daemon of protocol 3, or `ForbiddenCommand`."""
    if question not in ALLOWED_3:
        raise ForbiddenCommand(f"{question!r} is not on the list of allowed commands of protocol 3")
    return ALLOWED_3[question]


def script(servers: Sequence[int], *, with_contexts: bool) -> bytes:
    """All questions of one look, in the only order in which the replies can be told apart."""
    lines = [command("get_server_list"), command("get_default_active_thread_percentage")]
    for pid in servers:
        lines += [command("get_client_list", pid), command("get_server_status", pid)]
    if with_contexts:
        lines.append(command("ps"))
    return b"".join(lines)
