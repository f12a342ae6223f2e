"""The wish to end a sweep, seen by whoever waits on a descriptor."""

from __future__ import annotations

import os
import threading


class Stop:
    """Ask a running sweep to end: from any thread, any number of times, also out of a signal handler.

    `fd` is readable from the first `request` on and for ever, so every wait of the sweep can select on it.
    """

    def __init__(self) -> None:
        self._flag = threading.Event()
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def request(self) -> None:
        self._flag.set()
        os.eventfd_write(self.fd, 1)

    @property
    def requested(self) -> bool:
        return self._flag.is_set()

    def __del__(self) -> None:
        os.close(self.fd)
