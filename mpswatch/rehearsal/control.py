"""The control daemon: the questions on socket `control`, the clients on socket `rehearsal`, one server at a time."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import struct
import time
from collections.abc import Callable

import msgspec

from mpswatch.rehearsal import commands, protocol_3, state
from mpswatch.rehearsal.alarm import Alarm
from mpswatch.rehearsal.layout import SOCKET, DaemonPaths
from mpswatch.rehearsal.logs import Log
from mpswatch.rehearsal.server import Handoff
from mpswatch.rehearsal.serving import ServerProcess

FIRST_RETRY = 0.2  # seconds; doubled up to 25.6, as recorded (mps-facts: users and servers)
LAST_RETRY = 25.6
ANSWER_PATIENCE = 2.0  # seconds for a client program to take its reply


class Ask(msgspec.Struct, kw_only=True):
    """What a client sends: its cap as the environment variable would give it."""

    cap: str | None = None
    device_uuid: str | None = None
    service: bool = False
    busy: bool = False


class AttachLine(msgspec.Struct):
    attach: Ask


class Waiting(msgspec.Struct):
    """A client that has asked and has not been handed to a server."""

    connection: socket.socket
    pid: int
    uid: int
    ask: Ask


class Armed(msgspec.Struct):
    """A server change that has been ordered by a client of another uid, whether or not that client lives on."""

    waiting: Waiting
    retry: float
    due: float


class Control:
    """One control daemon process; `run` returns when it was told to quit."""

    def __init__(self, paths: DaemonPaths, options: state.Options) -> None:
        self._paths = paths
        self._options = options
        self._selector = selectors.DefaultSelector()
        self._log = Log(paths.log / "control.log", "Control")
        self._server = ServerProcess(paths, options, self._log)
        self._queue: list[Waiting] = []
        self._armed: Armed | None = None
        self._wedged = False
        self._contexts = 0
        self._named = options.protocol == 3
        self._answers = commands.Answers(paths=paths, options=options)

    def run(self, ready: int) -> int:
        signal.signal(signal.SIGCHLD, lambda *_: None)
        alarm = Alarm()

        def child_ended() -> None:
            alarm.hush()
            self._server.bury()

        self._watch(alarm.bell, child_ended)
        self._open()
        if self._options.server_uid is not None:
            self._start_server(self._options.server_uid)
        os.write(ready, b"ready")
        os.close(ready)
        while not self._answers.quit:
            patience = None if self._armed is None else 0.1
            for key, _ in self._selector.select(patience):
                key.data()
            self._try_armed()
        self._server.stop()
        for name in ("control", "control_privileged", "control_lock", "log", "nvidia-cuda-mps-control.pid", SOCKET):
            (self._paths.pipe / name).unlink(missing_ok=True)
        self._remove_folders()
        return 0

    def _remove_folders(self) -> None:
        for folder in self._paths.pipe.glob("uid_*"):
            shutil.rmtree(folder, ignore_errors=True)

    def _watch(self, channel: socket.socket, act: Callable[[], object]) -> None:
        self._selector.register(channel, selectors.EVENT_READ, act)

    def _leave(self, channel: socket.socket) -> None:
        self._selector.unregister(channel)
        channel.close()

    def _open(self) -> None:
        """The files of a real pipe directory (recordings: idle-daemon), and the one that marks a rehearsal."""
        pipe = self._paths.pipe
        for name in ("control", "control_privileged", SOCKET, "log"):
            (pipe / name).unlink(missing_ok=True)
        self._remove_folders()
        # The mark comes first and goes last: never is there a `control` of ours without it.
        self._listen(SOCKET, 0o666, self._greet)
        self._listen("control_privileged", 0o755, lambda connection: connection.close())
        os.mkfifo(pipe / "log")
        (pipe / "log").chmod(0o777)
        for name, content in (("control_lock", ""), ("nvidia-cuda-mps-control.pid", str(os.getpid()))):
            (pipe / name).write_text(content)
            (pipe / name).chmod(0o666)
        self._listen("control", 0o666, self._hear_program)

    def _listen(self, name: str, mode: int, act: Callable[[socket.socket], object]) -> None:
        listener = socket.socket(socket.AF_UNIX)
        path = self._paths.pipe / name
        listener.bind(str(path))
        path.chmod(mode)
        listener.listen(128)
        self._watch(listener, lambda: act(listener.accept()[0]))

    # --- questions ---------------------------------------------------------------------------------

    def _hear_program(self, connection: socket.socket) -> None:
        self._log.write("Accepting connection...\nNEW UI")
        connection.settimeout(ANSWER_PATIENCE)
        pending = bytearray()

        def hear() -> None:
            try:
                said = connection.recv(65536)
                pending.extend(said)
                while b"\n" in pending or (pending and not said):
                    line, _, rest = bytes(pending).partition(b"\n")
                    pending[:] = rest
                    if not self._answer(connection, line.decode(errors="replace").strip()):
                        said = b""
                        break
            except OSError:
                said = b""
            if not said:
                self._log.write("UI closed")
                self._leave(connection)

        self._watch(connection, hear)

    def _answer(self, connection: socket.socket, command: str) -> bool:
        """Reply to one command; False ends the connection."""
        self._log.write(f"Cmd:{command}")
        _, uid, _ = peer(connection)
        faults = state.faults(self._paths)
        honest = self._in_protocol_3(command, faults) if self._named else self._answers.reply(command, uid=uid)
        reply = commands.lie(faults, command, honest) if faults.lie else honest.encode(errors="surrogateescape")
        self._log.write(reply[:4096].decode(errors="replace").rstrip("\n"))
        connection.sendall(reply)
        return faults.lie not in commands.ENDING

    def _in_protocol_3(self, command: str, faults: state.Faults) -> str:
        if protocol_3.changes(command):
            state.append(self._paths.state.parent / "changing.jsonl", command)
        return protocol_3.reply(
            command,
            pipe=self._paths.pipe,
            devices=self._options.devices,
            server=state.server(self._paths),
            said=faults.server_state,
        )

    # --- clients -----------------------------------------------------------------------------------

    def _greet(self, connection: socket.socket) -> None:
        connection.settimeout(0)
        pid, uid, _ = peer(connection)
        said = bytearray()

        def hear() -> None:
            try:
                said.extend(part := connection.recv(4096))
            except OSError:
                part = b""
            if b"\n" in said:
                self._selector.unregister(connection)
                self._read(connection, bytes(said), pid=pid, uid=uid)
            elif not part or len(said) > 4096:
                self._leave(connection)

        self._watch(connection, hear)

    def _read(self, connection: socket.socket, line: bytes, *, pid: int, uid: int) -> None:
        try:
            ask = msgspec.json.decode(line, type=AttachLine).attach
        except msgspec.MsgspecError as error:
            connection.send(msgspec.json.encode({"refused": {"code": 1, "detail": str(error)}}) + b"\n")
            connection.close()
            return
        self._admit(Waiting(connection, pid, uid, ask))

    def _admit(self, waiting: Waiting) -> None:
        self._server.bury()  # one that has just died is no server any more
        faults = state.faults(self._paths) if not waiting.ask.service else state.Faults()
        if faults.attach in commands.ATTACH_REPLIES:
            waiting.connection.send(commands.ATTACH_REPLIES[faults.attach])
            waiting.connection.close()
        elif faults.attach == "silent" or self._wedged:
            self._queue.append(waiting)
        elif self._server.uid is None:
            self._log.write(f"Starting new server for user {waiting.uid}")
            self._start_server(waiting.uid)
            self._hand_over(waiting, faults)
        elif self._options.multi_user or waiting.uid == self._server.uid:
            self._log.write(f"NEW CLIENT {waiting.pid} from user {waiting.uid}: Server already exists")
            self._hand_over(waiting, faults)
        else:
            self._log.write(
                f"NEW CLIENT {waiting.pid} from user {waiting.uid}: Server is not ready, push client to pending list"
            )
            self._queue.append(waiting)
            if self._armed is None:
                self._armed = Armed(waiting, FIRST_RETRY, time.monotonic())

    def _hand_over(self, waiting: Waiting, faults: state.Faults) -> None:
        self._contexts += 1
        handoff = Handoff(
            pid=waiting.pid,
            uid=waiting.uid,
            context_id=self._contexts,
            cap=waiting.ask.cap,
            percentage=self._answers.limits.of(self._server.pid).percentage,
            device=self._answers.device(waiting.ask.device_uuid or commands.visible_device(waiting.pid)),
            service=waiting.ask.service,
            busy=waiting.ask.busy,
            faults=faults,
        )
        self._server.take(waiting.connection, handoff)
        waiting.connection.close()

    def _start_server(self, uid: int) -> None:
        self._answers.limits.begin(self._server.start(uid, default=self._answers.limits.percentage))
        if self._named:
            folder = self._paths.pipe / protocol_3.server_name(uid)
            if not folder.exists():
                folder.mkdir()
                self._listen(f"{folder.name}/control", 0o666, lambda connection: connection.close())

    def _try_armed(self) -> None:
        """Shut the server down at its first idle moment, also for a client that has died since: as recorded."""
        armed = self._armed
        if armed is None:
            return
        running = state.server(self._paths)
        if running is not None and running.clients:
            if time.monotonic() >= armed.due:
                self._log.write(
                    f"Try shutting down server {running.pid}, backoff is enabled\n"
                    f"Server {running.pid} has {len(running.clients) + 1} active worker threads. "
                    "Server will not shutdown.\n"
                    f"Control will try shutting down server {running.pid} again in at most {armed.retry * 1000:.0f}ms"
                )
                armed.due = time.monotonic() + armed.retry
                armed.retry = min(armed.retry * 2, LAST_RETRY)
            return
        self._armed = None
        self._server.stop()
        self._start_server(armed.waiting.uid)
        # The client that ordered this server may be dead: then those of the right uid hang, and nobody says why.
        self._wedged = hung_up(armed.waiting.connection)
        queue, self._queue = self._queue, []
        for waiting in queue:
            if hung_up(waiting.connection):
                waiting.connection.close()
            else:
                self._admit(waiting)


def peer(connection: socket.socket) -> tuple[int, int, int]:
    """pid, uid and gid of the process at the other end, from the kernel."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, gid = struct.unpack("3i", raw)
    return pid, uid, gid


def hung_up(connection: socket.socket) -> bool:
    """Whether the other end is gone."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def prepare(paths: DaemonPaths) -> None:
    """Make the directories of a control daemon."""
    for directory in (paths.pipe, paths.log, paths.state):
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o755)
    for file in (paths.log / "server.log", paths.state / "unsafe.jsonl"):
        file.touch()
        file.chmod(0o666)  # written by servers of several uids, one after the other
