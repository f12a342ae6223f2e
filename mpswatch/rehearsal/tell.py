"""How to tell a running stack what to do, from any process: one JSON object each way, on the stack's socket `tell`.

`daemon` names the control daemon wherever it matters, and is `default` when left out.

Who is there:
    status          reply: daemons (pid, server, attached_clients, unsafe_ends, harmed_neighbours,
                    changing_commands), tenants, departed, nvidia_smi
    service         name; count, arguments, memory_mib, devices, cap, uid, busy, cgroup, namespaced, escaped,
                    process_name, wait. Processes that attach as clients of the daemon (escaped: that ought to
                    and do not). Reply: pid, pids
    foreign         name, memory_mib (MiB, or {device: MiB}), and as above: processes on the GPU that the daemon
                    does not know. Reply: pid, pids
    visitor         name, memory_mib, away, stay, seed: a foreign tenant that comes and goes (seconds)
    remove          pid: that tenant ends
    ghost           pid, memory_mib, device, name: memory that belongs to a process that does not exist
    fill, drain     leave: contexts are taken until so many are left; given back
    queue           uid; memory_mib: a client of another uid waits (needs root); a server change is armed, as on
                    a real daemon; drain ends it
    daemon          name; devices, multi_user, server_uid, default_percentage, memory_limit, context_limit, protocol:
                    a control daemon more. Reply: pipe_directory, log_directory, pid

Daemons and servers:
    hang, resume    the control daemon is frozen (SIGSTOP), thawed
    die             what (daemon or server): it is killed, its files stay; services die with their server
    start           options as for daemon: a dead control daemon is started
    restart         options, again: daemon and server anew; with again, services too
    replace_server  again: another server, services again as new processes. Reply: old, new, services
    state           state: what get_server_status says; empty: the truth
    break           a GPU fault takes a busy service down and is over in 0.3 s. Reply: neighbour

What is answered (`how` empty: the truth again):
    lie             how: prose, half_line, flood, not_utf8, silence, wrong_clients, protocol3, or text with text
    attach          how: late, silent, close, refuse, nonsense, unlisted, twice, other_pid; seconds, pid: what
                    happens to measuring clients from now on
    slow            factor: measuring clients are told so much smaller a share
    smi             how: hang, na, permissions, unified, mig, garbage, half, empty, fail, lost, no_devices,
                    no_processes: nvidia-smi
    gpu             utilization (percent), used_by_nobody_mib
    honest          lies, hangs and ghosts are over
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import msgspec

from mpswatch.rehearsal.layout import Layout, RehearsalError

PATIENCE = 60.0  # seconds for an order: a thousand processes take a few


def tell(directory: Path, order: str, **details: object) -> dict[str, Any]:
    """Tell the stack in `directory` one order; returns its reply, or raises `RehearsalError`."""
    channel = socket.socket(socket.AF_UNIX)
    with channel:
        channel.settimeout(PATIENCE)
        try:
            channel.connect(str(Layout(directory).tell))
            channel.sendall(msgspec.json.encode({**details, "do": order}))
            channel.shutdown(socket.SHUT_WR)
            said = b""
            while part := channel.recv(65536):
                said += part
            answer = msgspec.json.decode(said, type=dict[str, Any])
        except (OSError, msgspec.MsgspecError) as error:
            raise RehearsalError(f"no rehearsal answers in {directory}: {error}") from None
        except UnicodeError as error:
            raise RehearsalError(f"the order {order!r} cannot be sent: {error}") from None
    if "error" in answer:
        raise RehearsalError(str(answer["error"]))
    reply: dict[str, Any] = answer["ok"]
    return reply
