"""The only commands that mpswatch ever sends to a control daemon: they ask, and change nothing.

Never on this list: quit, set_*, start_server, shutdown_server, terminate_client. The last of these killed a
busy neighbour in 9 of 12 trials (docs/measurements/survival.md).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType

from mpswatch.mps.devices import Device, default_names
from mpswatch.proc import PID_MAX

ALLOWED = MappingProxyType(
    {
        "get_server_list": "",
        "get_default_active_thread_percentage": "",
        "get_default_device_pinned_mem_limit": "D",
        "get_client_list": "S",
        "get_device_pinned_mem_limit": "SD",
        "get_active_thread_percentage": "S",
        "get_server_status": "S",
        "ps": "",
        "device_query": "",
    }
)
"""Command and the arguments that it takes: S is the pid of a server, D the uuid or ordinal of a device."""

_DEVICE = re.compile(r"GPU-[0-9a-f-]{36}|[0-9]{1,3}")

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


def command(name: str, *arguments: object) -> bytes:
    """One line for the control program, or `ForbiddenCommand`."""
    kinds = ALLOWED.get(name)
    if kinds is None or len(kinds) != len(arguments):
        raise ForbiddenCommand(f"{name!r} with {len(arguments)} arguments is not on the list of allowed commands")
    for kind, argument in zip(kinds, arguments, strict=True):
        if not (_is_pid(argument) if kind == "S" else isinstance(argument, str) and _DEVICE.fullmatch(argument)):
            raise ForbiddenCommand(f"{argument!r} is no {'server' if kind == 'S' else 'device'}")
    return " ".join([name, *map(str, arguments)]).encode("ascii") + b"\n"


def _is_pid(argument: object) -> bool:
    return isinstance(argument, int) and 0 < argument <= PID_MAX


def arguments(question: str) -> tuple[str, ...]:
    """The arguments that ask a daemon of protocol 3, or `ForbiddenCommand`."""
    if question not in ALLOWED_3:
        raise ForbiddenCommand(f"{question!r} is not on the list of allowed commands of protocol 3")
    return ALLOWED_3[question]


def script(servers: Sequence[int], *, with_contexts: bool, devices: Sequence[Device] | None = None) -> bytes:
    """All questions of one look, in the only order in which the replies can be told apart.

    With `devices` (None: not this time) limits are asked too. One that is not set is answered by nothing at all, and
    what other drivers print is not known, so each stands between two percentages, which always are a decimal.
    """
    percentage = command("get_default_active_thread_percentage")
    lines = [command("get_server_list"), percentage]
    for name in default_names(devices or ()):
        lines += [command("get_default_device_pinned_mem_limit", name), percentage]
    for pid in servers:
        lines.append(command("get_client_list", pid))
        if devices is not None:
            percentage = command("get_active_thread_percentage", pid)
            lines.append(percentage)
            for device in devices:
                lines += [command("get_device_pinned_mem_limit", pid, device.uuid), percentage]
        lines.append(command("get_server_status", pid))
    if with_contexts:
        lines.append(command("ps"))
    return b"".join(lines)
