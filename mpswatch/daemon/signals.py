"""What a signal asks of the daemon: stop (a second time: at once), reload, sweep now."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from mpswatch import logs
from mpswatch.daemon.exit import Exit


class Signals:
    """Made before the loop turns and taken when it does. `before_leaving` is called where nothing is waited for."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        reload: Callable[[], object],
        sweep: Callable[[], object],
        before_leaving: Callable[[], object],
    ) -> None:
        self.stopping = asyncio.Event()
        self._loop = loop
        self._reload = reload
        self._sweep = sweep
        self._before_leaving = before_leaving
        self._log = logs.get_logger()
        # Asked now: once it has hung up, it is no terminal any more. Under nohup it is nobody's.
        self._terminal = _has_terminal() and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN

    def take(self) -> None:
        """From here on the loop answers them."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._asked_to_stop, signal.Signals(number).name)
        self._loop.add_signal_handler(signal.SIGHUP, self._hung_up)
        self._loop.add_signal_handler(signal.SIGUSR1, self._sweep)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    def _asked_to_stop(self, name: str) -> None:
        if self.stopping.is_set():
            self._log.warning("leaving at once; a client that measures drains and leaves by itself")
            self._before_leaving()
            logs.flush(0.5)
            os._exit(Exit.LEFT_AT_ONCE)
        self._log.info("stopping", signal=name)
        self.stopping.set()

    def _hung_up(self) -> None:
        if self._terminal:
            self._asked_to_stop("SIGHUP")
        else:
            self._reload()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
