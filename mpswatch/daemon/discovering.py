"""Which control daemons run here, looked for again with each poll (`daemons: auto`)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mpswatch.config import default_daemon
from mpswatch.mps.discovery import by_environment, listening, log_directory
from mpswatch.poll import DaemonAddress
from mpswatch.proc import Processes
from mpswatch.process.watched import SourceStuck, Watched

DROPPED_AFTER = 900.0
"""Seconds that a daemon which is gone is still watched, and reported down: time for an alert to be seen."""

MOST = 32
"""Control daemons: anybody may listen on sockets of these names, and each that is watched costs threads and series."""

_ALL_OF_PROC_EVERY = 20
"""Looks: the kernel's list of sockets is read at each, and shows most daemons at once. The rest costs more."""

_DEADLINE = 2.0


@dataclass(slots=True)
class _Seen:
    address: DaemonAddress
    at: float
    is_there: bool = True


class Discovering:
    """`addresses` are those to watch, in the order of their pipe directories, as the last look found them.

    Where none was ever found, the default one is watched (and reported absent). The last one is never dropped: a host
    without any control daemon must not look like one that is well.
    """

    def __init__(
        self, processes: Processes, *, rehearsals: bool = False, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._processes = processes
        self._rehearsals = rehearsals
        self._monotonic = monotonic
        self._watched = Watched("discovery")
        self._seen: dict[Path, _Seen] = {}
        self._sockets: frozenset[Path] = frozenset()
        self._elsewhere: frozenset[Path] = frozenset()
        self._looks = 0
        self.addresses: tuple[DaemonAddress, ...] = (_default(),)

    def look(self, *, may_drop: bool = True) -> tuple[DaemonAddress, ...]:
        """Those to watch now. Nobody is dropped while a sweep may be at work under one (`may_drop` False)."""
        with contextlib.suppress(SourceStuck):  # somebody's pipe directory hangs, and anybody may listen in one
            self._watched.call(lambda: self._look(may_drop), _DEADLINE)
        return self.addresses

    def _look(self, may_drop: bool) -> None:  # noqa: FBT001 - as `look`
        sockets = listening(self._processes, rehearsals=self._rehearsals)
        if not self._rehearsals and (sockets != self._sockets or self._looks % _ALL_OF_PROC_EVERY == 0):
            self._elsewhere = by_environment(self._processes)
        self._sockets, self._looks = sockets, self._looks + 1
        self._note(sockets | self._elsewhere)
        if may_drop:
            self._drop()
        if self._seen:
            self.addresses = tuple(seen.address for _, seen in sorted(self._seen.items()))

    def _note(self, there: frozenset[Path]) -> None:
        now = self._monotonic()
        for path in sorted(there):
            seen = self._seen.get(path)
            if seen is None and len(self._seen) >= MOST:
                continue
            if seen is None or not seen.is_there:  # one that was started anew may have its logs elsewhere
                seen = self._seen[path] = _Seen(_address(path, log_directory(path, self._processes)), now)
            seen.at = now
        for path, seen in self._seen.items():
            seen.is_there = path in there

    def _drop(self) -> None:
        """Forget who has been gone for so long, the longest first, but for the last one."""
        now = self._monotonic()
        for path, seen in sorted(self._seen.items(), key=lambda item: item[1].at):
            if now - seen.at >= DROPPED_AFTER and len(self._seen) > 1:
                del self._seen[path]


def _default() -> DaemonAddress:
    entry = default_daemon()
    return _address(Path(entry.pipe_directory), Path(entry.log_directory) if entry.log_directory else None)


def _address(pipe_directory: Path, log_directory: Path | None) -> DaemonAddress:
    return DaemonAddress(name=str(pipe_directory), pipe_directory=pipe_directory, log_directory=log_directory)
