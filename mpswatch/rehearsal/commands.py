"""What the control daemon answers: honestly, in the recorded words, or the lie that it was told to tell."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from mpswatch.rehearsal import gpus, state
from mpswatch.rehearsal.layout import DaemonPaths
from mpswatch.rehearsal.limits import Limits

CHANGING = ("quit", "set_", "start_server", "shutdown_server", "terminate_client")
"""Commands that change something: mpswatch never sends one, so each that arrives is counted (tell.py: status)."""

PS_HEADER = ("PID", "ID", "SERVER", "DEVICE", "NAMESPACE", "COMMAND")
FLOOD = 10_000_000  # bytes
PROSE = b"The control daemon is currently undergoing maintenance, please try again later.\n"
ENDING = frozenset({"prose", "half_line", "flood", "not_utf8", "silence", "text"})
"""Lies after which the daemon closes the connection, however many commands were still to come."""

ATTACH_REPLIES = {
    "refuse": b'{"refused": {"code": 805, "detail": "CUDA_ERROR_MPS_CONNECTION_FAILED"}}\n',
    "nonsense": b'{"attached": "\xff\xfe',
    "close": b"",
}


class Answers:
    """The honest replies, as recorded on an H200: what is empty (servers, clients, contexts) is nothing at all."""

    def __init__(self, *, paths: DaemonPaths, options: state.Options) -> None:
        self._paths = paths
        self._options = options
        self.limits = Limits(options)
        self.quit = False

    def device(self, uuid: str | None) -> int:
        """The index of the device a client asks for; the first when it does not say."""
        for index in self._options.devices:
            if gpus.uuid(index) == uuid:
                return index
        return self._options.first_device

    def reply(self, command: str, *, uid: int) -> str:
        word, *arguments = command.split() or [""]
        if word.startswith(CHANGING):
            return self._changing(word, arguments, uid=uid)
        server = state.server(self._paths)
        answers: dict[str, Callable[[], str]] = {
            "get_server_list": lambda: f"{server.pid}\n" if server else "",
            "get_default_active_thread_percentage": lambda: f"{self.limits.percentage:.1f}\n",
            "get_default_device_pinned_mem_limit": lambda: self.limits.default_memory(arguments),
            "get_default_client_priority": lambda: "0\n",
            "ps": lambda: _ps(server) if server else "Server not found\n",
            "get_device_client_list": lambda: self._by_device(server) if server else "",
            "device_query": lambda: self._numbers(server),
        }
        if word in answers:
            return answers[word]()
        if word in {
            "get_client_list",
            "get_server_status",
            "get_active_thread_percentage",
            "get_device_pinned_mem_limit",
        }:
            if word == "get_device_pinned_mem_limit" and not arguments:
                return ""
            pid = arguments[0] if arguments else "0"
            if server is None or pid != str(server.pid):
                return f"Server {pid} not found\n"
            return self._of_server(word, arguments[1:], server)
        return f'Unknown command "{command}"\n'

    def _of_server(self, word: str, arguments: list[str], server: state.ServerState) -> str:
        if word == "get_server_status":
            faulty = time.monotonic() < server.fault_until
            return (state.faults(self._paths).server_state or ("FAULT" if faulty else "ACTIVE")) + "\n"
        if word == "get_active_thread_percentage":
            return f"{self.limits.of(server.pid).percentage:.1f}\n"
        if word == "get_device_pinned_mem_limit":
            return self.limits.memory(server.pid, arguments)
        return "".join(f"{pid}\n" for client in server.clients for pid in client.listed)

    def _by_device(self, server: state.ServerState) -> str:
        lines = []
        for index in self._options.devices:
            lines.append(f"[{index}] 00:00.0, {gpus.NAME}")
            lines.extend(f"{pid}.1" for client in server.clients if client.device == index for pid in client.listed)
        return "\n".join(lines) + "\n"

    def _numbers(self, server: state.ServerState | None) -> str:
        head = ("Device Ordinal", "PCI IDs", "UUID", "Name", "Attributes")
        rows = [
            (str(number), f"0000:00.{6 + index:02X}.00", gpus.uuid(index), gpus.NAME, "N/A")
            for number, index in enumerate(self._options.devices)
        ]
        whole = "".join(f"{row[0]:<16}{row[1]:<15}{row[2]:<42}{row[3]:<34}{row[4]}\n" for row in [head, *rows])
        return f"Default\n{whole}" + (f"\nServer {server.pid}\n{whole}" if server else "")

    def _changing(self, word: str, arguments: list[str], *, uid: int) -> str:
        state.append(self._paths.state.parent / "changing.jsonl", " ".join([word, *arguments]))
        if uid not in {0, _owner(self._paths)}:
            return f"Not enough privilege to execute {word} command\n"
        if word == "quit":
            self.quit = True
            return "\n"
        said = self.limits.set(word, arguments)
        return f"Not enough privilege to execute {word} command\n" if said is None else said


def _owner(paths: DaemonPaths) -> int:
    return paths.base.stat().st_uid


def _ps(server: state.ServerState) -> str:
    if not any(client.listed for client in server.clients):
        return ""
    rows: list[tuple[str, ...]] = [PS_HEADER]
    for client in server.clients:
        for number, pid in enumerate(client.listed):
            device = gpus.uuid(client.device)[:22]
            row = (pid, client.context_id + number, server.pid, device, namespace_of(pid), command_of(pid))
            rows.append(tuple(str(field) for field in row))
    widths = (10, 10, 15, 26, 15, 15)
    return "".join(
        "".join(f"{field:<{width}}" for field, width in zip(row, widths, strict=True)) + "\n" for row in rows
    )


def namespace_of(pid: int) -> int:
    """The inode of a process's pid namespace; 0 when it is gone or not ours to see."""
    try:
        return Path(f"/proc/{pid}/ns/pid").stat().st_ino
    except OSError:
        return 0


def command_of(pid: int) -> str:
    """The program as its command line names it."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode(errors="surrogateescape")
    except OSError:
        return ""


def visible_device(pid: int) -> str | None:
    """The device that a client's environment names, as the driver would read it; None where it may not be read."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    given = [entry.partition(b"=")[2] for entry in environment if entry.startswith(b"CUDA_VISIBLE_DEVICES=")]
    return given[0].decode(errors="replace") if given else None


def lie(faults: state.Faults, command: str, honest: str) -> bytes:
    """What a daemon that was told to lie answers to `command` (tell.py lists the lies)."""
    word = command.partition(" ")[0]
    if faults.lie == "flood":
        return b"4711\n" * (FLOOD // 5)
    whole = {
        "prose": PROSE,
        "half_line": honest.encode(errors="surrogateescape").rstrip(b"\n")[:-1] or b"47",
        "not_utf8": b"\xff\xfe\x80" + honest.encode(errors="surrogateescape"),
        "silence": b"",
        "text": faults.text.encode(errors="surrogateescape"),
    }
    if faults.lie in whole:
        return whole[faults.lie]
    if faults.lie == "protocol3":
        return b"Ready\n" if word == "get_server_status" else f'Unknown command "{command}"\n'.encode()
    if faults.lie == "wrong_clients" and word == "get_client_list":
        return b"1\n4194303\n"
    return honest.encode(errors="surrogateescape")
