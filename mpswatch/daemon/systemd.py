"""What systemd is told (sd_notify), straight onto its datagram socket."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import MutableMapping


class Notifier:
    """Tells the service manager how we are; without one every call does nothing.

    Taking it from the environment takes NOTIFY_SOCKET out of it, so that no child of ours can speak for us.
    """

    def __init__(self, address: str | None, watchdog: float | None = None) -> None:
        self.watchdog = watchdog
        """Seconds after which systemd restarts a service that has not called `alive`; None: it does not watch."""
        self._address = address
        self._socket: socket.socket | None = None

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str] = os.environ) -> Notifier:
        address = environ.pop("NOTIFY_SOCKET", None)
        microseconds, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        ours = not pid or pid == str(os.getpid())
        watchdog = int(microseconds) / 1e6 if ours and microseconds.isdigit() and int(microseconds) > 0 else None
        return cls(address, watchdog)

    def ready(self, status: str) -> None:
        self._send(f"READY=1\nSTATUS={_line(status)}")

    def reloading(self) -> None:
        # MONOTONIC_USEC is what Type=notify-reload needs to tell this reload from an earlier one
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str) -> None:
        self._send(f"STOPPING=1\nSTATUS={_line(status)}")

    def status(self, status: str) -> None:
        self._send(f"STATUS={_line(status)}")

    def alive(self) -> None:
        self._send("WATCHDOG=1")

    def extend(self, seconds: float) -> None:
        """Ask for that much more time (a sweep drains while we stop)."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, message: str) -> None:
        if self._address is None:
            return
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
                self._socket.settimeout(0)
            name = "\0" + self._address[1:] if self._address.startswith("@") else self._address
            self._socket.sendto(message.encode(), name)
        except OSError:
            # The manager is away or its queue is full: it will ask again by not hearing from us.
            return


def _line(text: str) -> str:
    return " ".join(text.split())
