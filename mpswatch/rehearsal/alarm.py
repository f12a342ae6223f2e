"""Signals as one more thing that a selector waits for."""

from __future__ import annotations

import signal
import socket


class Alarm:
    """Wakes a selector when a signal with a Python handler arrives; one a process, kept for as long as it lives."""

    def __init__(self) -> None:
        self.bell, self._clapper = socket.socketpair()
        for end in (self.bell, self._clapper):
            end.settimeout(0)
        signal.set_wakeup_fd(self._clapper.fileno(), warn_on_full_buffer=False)

    def hush(self) -> None:
        """Take note of what has rung."""
        self.bell.recv(4096)
