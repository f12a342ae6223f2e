"""What the preflight needs to know of this host: who holds the lock, and how much memory there is."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from mpswatch.documents import Reason
from mpswatch.proc import Processes, ProcessGone
from mpswatch.sweep.permit import LockHolder


def lock_holders(
    processes: Processes, pipe_directory: Path, *, but: int | None = None, left_over: Container[int] = ()
) -> tuple[LockHolder, ...]:
    """Who took the lock on the pipe directory, the process `but` (our own launcher) apart.

    `left_over` are launchers of earlier sweeps that had not ended with them.
    """
    try:
        pids = processes.flock_holders(pipe_directory)
    except OSError:
        return ()  # no pipe directory, or no /proc: the control daemon is refused for its absence
    return tuple(
        LockHolder(pid=pid, age_seconds=_age(processes, pid), left_over=pid in left_over) for pid in pids if pid != but
    )


def _age(processes: Processes, pid: int) -> float | None:
    """Seconds since that process started, None when it is gone, 0 where it may not be looked at."""
    try:
        return processes.age_seconds(processes.facts(pid)) or 0.0
    except ProcessGone as error:
        return 0.0 if error.reason is Reason.PERMISSION else None


def available_memory(meminfo: Path) -> int | None:
    """MemAvailable in bytes, None where it cannot be read."""
    try:
        line = next(line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration, ValueError, IndexError):
        return None
