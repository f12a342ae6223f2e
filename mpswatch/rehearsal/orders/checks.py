"""What orders have in common."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from mpswatch.rehearsal.layout import RehearsalError
from mpswatch.rehearsal.scene import Daemon


def one_of(value: str, known: frozenset[str], what: str) -> str:
    """`value`, provided that it is known; `what` names the kind for the error."""
    if value not in known:
        raise RehearsalError(f"{value!r} is none of the {what}: {', '.join(sorted(known - {''}))}")
    return value


def until_true(done: Callable[[], bool], what: str, seconds: float = 5.0) -> None:
    """Wait until `done`; `what` says what did not come about when it takes longer."""
    until = time.monotonic() + seconds
    while not done():
        if time.monotonic() > until:
            raise RehearsalError(f"{what} did not come about within {seconds} s")
        time.sleep(0.002)


def checked_server(server: int, daemon: Daemon) -> int:
    """The server's pid, provided that it is the control daemon's child: the file that names it is its own."""
    parent = int(Path(f"/proc/{server}/stat").read_bytes().rpartition(b")")[2].split()[1])
    if parent != daemon.pid:
        raise RehearsalError(f"process {server} is not this daemon's server")
    return server
