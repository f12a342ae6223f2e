"""control.log: the only place where a client of another uid shows that waits for the server to be shut down.

Such a client is queued; `get_server_status` says ACTIVE throughout, and no command tells. From then on the daemon tries
to shut the running server down, 0.2 s, 0.4 s … 25.6 s apart, and succeeds at its first idle moment, even when that
client has died since (recordings wrong-uid-client, armed-shutdown-by-dead-client):

    Control will try shutting down server 633 again in at most 3200ms
    Try shutting down server 633, backoff is enabled
    NEW CLIENT 1733 from user 65534: Server is not ready, push client to pending list

Read as it grows, and never written to. The daemon also writes its replies here, and with them the names that processes
gave themselves, line breaks included: a line alone is believed only of the server that runs, or of a process that is
there and of that user.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import threading
from pathlib import Path

from mpswatch.documents import Reason, Waiting, WaitingClient
from mpswatch.errors import MpswatchError

FILE_NAME = "control.log"

_MOST_BYTES = 1 << 20
"""Read at one look: what a busy daemon writes in hours. A try to shut down comes every 25.6 s at most."""
_MOST_WAITING = 256

_LINE = re.compile(rb"^\[[^\]]{1,80}\]\s+(.*)$")
_CLIENT = re.compile(rb"NEW CLIENT (\d{1,10}) from user (\d{1,10}): (.*)")
_TRY = re.compile(rb"(?:Control will try|Try) shutting down server (\d{1,10})\b")
_NEW_SERVER = re.compile(rb"(?:Starting new server (\d{1,10}) for user (\d{1,10})|NEW SERVER (\d{1,10}): Ready)")


class ControlLogError(MpswatchError):
    """The log cannot be read: `permission`, or `not_recorded` where there is none."""


class ControlLog:
    """Follows `control.log` in one log directory, for any thread."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self._one_at_a_time = threading.Lock()
        self._place: tuple[int, int] | None = None
        self._offset = 0
        self._rest = b""
        self._armed: int | None = None
        self._pending: dict[int, int] = {}
        self._nobodies: dict[int, int] = {}

    def look(self, *, server: int | None, server_uid: int | None, multi_user: bool | None) -> Waiting:
        """Who waits now, given the server that runs (None for none). Raises `ControlLogError`.

        `clients` are all that were queued since that server came and are of another uid: who is still there, the
        caller knows. One that a multi-user server queues only waits for the server to be ready.
        """
        with self._one_at_a_time:
            for line in self._new_lines():
                self._take(line)
            return self._waiting(server, server_uid, multi_user=multi_user)

    def _waiting(self, server: int | None, server_uid: int | None, *, multi_user: bool | None) -> Waiting:
        if multi_user or server is None:
            return Waiting()
        clients = [(pid, uid) for pid, uid in self._pending.items() if uid != server_uid]
        clients += [(0, uid) for uid in self._nobodies if uid != server_uid]
        return Waiting(
            clients=tuple(WaitingClient(pid=pid, uid=uid) for pid, uid in sorted(clients)),
            shutdown_armed=self._armed == server,
        )

    def _take(self, line: bytes) -> None:
        stamped = _LINE.match(line)
        said = stamped[1].strip() if stamped else line.strip()
        if tried := _TRY.match(said):
            self._armed = int(tried[1])
        elif came := _CLIENT.match(said):
            pid, uid, what = int(came[1]), int(came[2]), came[3]
            queued = self._pending if pid else self._nobodies
            if b"pending" not in what:
                self._pending.pop(pid, None)
            elif len(queued) < _MOST_WAITING:
                queued[pid or uid] = uid
        elif _NEW_SERVER.match(said):
            # whoever waited is admitted, or is queued anew with a line of its own
            self._armed = None
            self._pending.clear()
            self._nobodies.clear()

    def _new_lines(self) -> list[bytes]:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            raise ControlLogError(Reason.NOT_RECORDED, f"there is no {self.path}") from None
        except OSError as error:
            raise ControlLogError(Reason.PERMISSION, f"{self.path}: {error.strerror}") from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ControlLogError(Reason.NOT_RECORDED, f"{self.path} is no regular file")
            place = (status.st_dev, status.st_ino)
            if place != self._place or status.st_size < self._offset:
                self._place, self._offset, self._rest = place, 0, b""
            if status.st_size - self._offset > _MOST_BYTES:
                self._offset, self._rest = status.st_size - _MOST_BYTES, b""
            data = b""
            with contextlib.suppress(OSError):
                data = os.pread(descriptor, status.st_size - self._offset, self._offset)
        finally:
            os.close(descriptor)
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-4096:]
        return lines
