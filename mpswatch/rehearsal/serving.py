"""The control daemon's side of its server: one process at a time, for one uid."""

from __future__ import annotations

import os
import socket
import time

import msgspec

from mpswatch.rehearsal import processes, state
from mpswatch.rehearsal.layout import DaemonPaths
from mpswatch.rehearsal.logs import Log
from mpswatch.rehearsal.server import Handoff, Server

GRACE = 2.0  # seconds for a server to come up, or to leave before it is ended


class ServerProcess:
    """Starts, feeds and buries the server. `uid` is None while there is none, `pid` is then the last one's."""

    def __init__(self, paths: DaemonPaths, options: state.Options, log: Log) -> None:
        self._paths = paths
        self._options = options
        self._log = log
        self.pid = 0
        self._inbox: socket.socket | None = None
        self.uid: int | None = None

    def start(self, uid: int, *, default: float) -> int:
        """Start a server that runs as `uid` (a multi-user one, and any without root: as we do); returns its pid."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        uid = uid if os.getuid() == 0 and not self._options.multi_user else os.getuid()
        os.chown(self._paths.state, uid, -1)

        def serve() -> int:
            return Server(
                paths=self._paths, inbox=theirs, options=self._options, uid=uid, pid=os.getpid(), default=default
            ).run()

        arguments = ["nvidia-cuda-mps-server", *(["-multiuser-server"] if self._options.multi_user else [])]
        self.pid = processes.fork(serve, arguments=arguments, uid=uid, keep=[theirs.fileno()])
        theirs.close()
        self._inbox, self.uid = ours, uid
        until = time.monotonic() + GRACE
        while (found := state.server(self._paths)) is None or found.pid != self.pid:
            if time.monotonic() > until:
                break
            time.sleep(0.002)
        self._log.write(f"NEW SERVER {self.pid}: Ready")
        return self.pid

    def take(self, connection: socket.socket, handoff: Handoff) -> None:
        """Hand a client's connection over; a server that has just died takes the client's hope with it."""
        if self._inbox is None:
            return
        try:
            socket.send_fds(self._inbox, [msgspec.json.encode(handoff)], [connection.fileno()])
        except OSError:
            self.bury()

    def stop(self) -> None:
        """End the server in good order."""
        if self._inbox is None:
            return
        self._inbox.close()
        until = time.monotonic() + GRACE
        while not self.bury():
            if time.monotonic() > until:
                processes.end(self.pid)
            time.sleep(0.002)

    def bury(self) -> bool:
        """Take note of the server's end; False while it lives."""
        if self._inbox is None:
            return True
        ended, status = os.waitpid(self.pid, os.WNOHANG)
        if not ended:
            return False
        self._inbox.close()
        self._inbox, self.uid = None, None
        (self._paths.state / "server.json").unlink(missing_ok=True)
        self._log.write(f"Server {ended} exited with status {os.waitstatus_to_exitcode(status)}")
        return True
