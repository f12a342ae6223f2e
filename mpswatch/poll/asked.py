"""One control daemon with the threads that ask it, and what is kept of it from look to look."""

from __future__ import annotations

from mpswatch.mps.control_log import ControlLog
from mpswatch.poll.looks import DaemonAddress
from mpswatch.process.watched import Watched


class Asked:
    """A sweep's own questions have threads of their own, so that a poll under way does not look like a stuck one."""

    def __init__(self, address: DaemonAddress) -> None:
        self.address = address
        self.servers: tuple[int, ...] = ()
        self.watched = Watched(f"mps {address.name}")
        self.for_sweep = Watched(f"mps {address.name} (sweep)")
        self.log = ControlLog(address.log_directory) if address.log_directory is not None else None
        self.watched_log = Watched(f"control.log of {address.name}")
        self.log_for_sweep = Watched(f"control.log of {address.name} (sweep)")
