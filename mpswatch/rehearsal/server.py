"""The MPS server: holds the attached clients, and does to their neighbours what a real one does.

It gets each client's connection from the control daemon, answers, and then only listens: b"+" before a piece
of work, b"-" after it. A client whose connection ends in between has ended with work in flight, and takes a busy
neighbour down: that service dies, and server.log names *it* as the culprit, as measured on an H200.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
import time
from collections.abc import Callable

import msgspec

from mpswatch.rehearsal import caps, gpus, state
from mpswatch.rehearsal.alarm import Alarm
from mpswatch.rehearsal.layout import DaemonPaths
from mpswatch.rehearsal.logs import Log

RECOVERY = 0.3  # seconds until ACTIVE again after a fault; a real server takes less than half a second
WRITE_PERIOD = 0.02  # seconds between two records of work in flight


class Handoff(msgspec.Struct, kw_only=True):
    """What the control daemon says about a client whose connection it hands over."""

    pid: int
    uid: int
    context_id: int
    cap: str | None
    percentage: float
    device: int
    service: bool
    busy: bool
    faults: state.Faults


class Server:
    """One server process; `run` returns when the control daemon has closed `inbox`."""

    def __init__(
        self, *, paths: DaemonPaths, inbox: socket.socket, options: state.Options, uid: int, pid: int, default: float
    ) -> None:
        self._paths = paths
        self._inbox = inbox
        self._options = options
        self._default = default
        self._state = state.ServerState(pid=pid, uid=uid, multi_user=options.multi_user, percentage=default)
        self._clients: dict[socket.socket, state.Client] = {}
        self._waiting: list[tuple[float, socket.socket, Handoff]] = []
        self._selector = selectors.DefaultSelector()
        self._log = Log(paths.log / "server.log", "Server")
        self._stale = False
        self._fault_ordered = False

    def run(self) -> int:
        signal.signal(signal.SIGUSR1, self._order_fault)
        alarm = Alarm()
        self._watch(alarm.bell, alarm.hush)
        self._watch(self._inbox, self._take)
        self._log.write(f"Active thread percentage set to {self._default}")
        self._write()
        while self._inbox.fileno() >= 0:
            for key, _ in self._selector.select(self._patience()):
                key.data()
            if self._fault_ordered:
                self._fault_ordered = False
                self._harm(by=None)
            self._let_late_ones_in()
            if self._stale:
                self._write()
        return 0

    def _order_fault(self, *_: object) -> None:
        self._fault_ordered = True

    def _watch(self, channel: socket.socket, act: Callable[[], object]) -> None:
        self._selector.register(channel, selectors.EVENT_READ, act)

    def _patience(self) -> float | None:
        if self._stale:
            return WRITE_PERIOD
        if self._waiting:
            return max(min(due for due, _, _ in self._waiting) - time.monotonic(), 0)
        return None

    def _take(self) -> None:
        message, descriptors, _, _ = socket.recv_fds(self._inbox, 4096, 1)
        if not message:
            self._selector.unregister(self._inbox)
            self._inbox.close()
            return
        connection = socket.socket(fileno=descriptors[0])
        connection.settimeout(0)
        handoff = msgspec.json.decode(message, type=Handoff)
        self._log.write("Received new client request")
        if handoff.faults.attach == "late":
            self._waiting.append((time.monotonic() + handoff.faults.seconds, connection, handoff))
        else:
            self._let_in(connection, handoff)

    def _let_late_ones_in(self) -> None:
        now = time.monotonic()
        for late in [waiting for waiting in self._waiting if waiting[0] <= now]:
            self._waiting.remove(late)
            self._let_in(late[1], late[2])

    def _let_in(self, connection: socket.socket, handoff: Handoff) -> None:
        if len(self._clients) >= self._options.context_limit:
            self._log.write(f"Client {handoff.pid} refused: maximum number of clients reached")
            detail = "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED"
            _send(connection, {"refused": {"code": 808, "detail": detail}})
            connection.close()
            return
        sm_count = caps.sm_count(caps.effective(handoff.cap, handoff.percentage))
        listed = {"unlisted": (), "twice": (handoff.pid, handoff.pid), "other_pid": (handoff.faults.pid,)}
        self._clients[connection] = state.Client(
            pid=handoff.pid,
            context_id=handoff.context_id,
            uid=handoff.uid,
            cap=handoff.cap,
            sm_count=sm_count,
            device=handoff.device,
            service=handoff.service,
            busy=handoff.busy,
            listed=listed.get(handoff.faults.attach, (handoff.pid,)),
        )
        self._write()  # listed before it is told so, as with a real server
        self._log.write(f"New client {handoff.pid} connected")
        self._watch(connection, lambda: self._hear(connection))
        _send(
            connection,
            {
                "attached": {
                    "sm_count": sm_count,
                    "sm_total": caps.SM_TOTAL,
                    "device_uuid": gpus.uuid(handoff.device),
                    "device_name": gpus.NAME,
                    "share": sm_count / caps.SM_TOTAL / handoff.faults.slow,
                }
            },
        )

    def _hear(self, connection: socket.socket) -> None:
        if connection not in self._clients:
            return
        client = self._clients[connection]
        try:
            said = connection.recv(4096)
        except BlockingIOError:
            return
        except ConnectionError:
            said = b""
        if said:
            client.pieces += said.count(b"+")
            client.in_flight += said.count(b"+") - said.count(b"-")
            self._stale = True
            return
        self._drop(connection)
        self._log.write(f"Client {client.pid} disconnected")
        if client.in_flight > 0 and not client.service:
            self._harm(by=client.pid)
        self._write()

    def _drop(self, connection: socket.socket) -> None:
        del self._clients[connection]
        self._selector.unregister(connection)
        connection.close()

    def _harm(self, by: int | None) -> None:
        """What ending with work in flight does: the busy service that has been here longest dies of it."""
        neighbours = [(connection, client) for connection, client in self._clients.items() if client.busy]
        neighbour = None
        if neighbours:
            connection, client = neighbours[0]
            neighbour = client.pid
            self._log.write(f"Client {{PID: {client.pid}, Context: 1}} encountered a fatal GPU error")
            _send(connection, {"fault": {"code": 700, "detail": "an illegal memory access was encountered"}})
            self._drop(connection)
            self._state.fault_until = time.monotonic() + RECOVERY
        state.append(
            self._paths.state / "unsafe.jsonl", state.UnsafeEnd(server=self._state.pid, by=by, neighbour=neighbour)
        )
        self._write()

    def _write(self) -> None:
        self._stale = False
        self._state.clients = list(self._clients.values())
        state.write(self._paths.state / "server.json", self._state)


def _send(connection: socket.socket, message: object) -> None:
    with contextlib.suppress(OSError):  # it has left, or does not read: its connection will tell
        connection.sendall(msgspec.json.encode(message) + b"\n")
