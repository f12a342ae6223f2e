"""The image's first process: starts mpswatch, forwards what it is told, reaps, and leaves last.

When a container's first process ends, everything in the container is killed, and a measuring client that is
killed with work in flight takes a neighbour on the MPS server down with it. So this one outlives the daemon for
as long as a measuring client is there, whatever became of the daemon. It ends nobody: signals go to the daemon
alone. Standard library only, and run by path (`python3 -I -S container_init.py PROGRAM …`), so that it stays small.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

FORWARDED = frozenset(
    {
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGCONT,
        signal.SIGWINCH,
    }
)

CLIENT_IGNORES = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Nothing but a measuring client ignores all of these (mpswatch/process/trampoline.py); an interactive shell or a
program under nohup ignores some. Told by this, and not by a name, because the client's argv is the sweep's affair."""

CLIENT_LOOK = 0.2
"""Seconds between two looks for clients, once the daemon has left."""

_DEFAULT = (*FORWARDED, signal.SIGPIPE, signal.SIGXFSZ)
"""What the daemon must not ignore from its start, though this interpreter does (the last two), or whoever started it
did (nohup: SIGHUP). One that ignored all of `CLIENT_IGNORES` would pass for a client."""

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


def main(arguments: Sequence[str]) -> int:
    """Run `arguments` (program and its arguments) until it and every measuring client have left.

    Returns the program's exit code, 128 + N where signal N ended it, 127 where it could not be started.
    """
    if not arguments:
        _say("usage: container_init.py PROGRAM [ARGUMENT ...]")
        return 2
    if os.getpid() != 1:
        _adopt_orphans()  # with the host's pid namespace we are not its pid 1, and orphans would pass us by
    waited = FORWARDED | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    try:
        daemon = _start(arguments, before)
    except OSError as error:
        _say(f"cannot start {arguments[0]}: {error.strerror}")
        return 127
    code = None
    while code is None:
        told = signal.sigwaitinfo(waited).si_signo
        if told == signal.SIGCHLD:
            code = _reap().get(daemon)
        else:
            # Only this thread reaps, and it has not yet: the pid is still the daemon's, be it a zombie.
            os.kill(daemon, told)  # noqa: TID251 - the daemon, never a client: it hears by end-of-file
    _outlast_clients(waited)
    return code


def measuring_clients(proc: Path = Path("/proc")) -> tuple[int, ...]:
    """The pids of measuring clients in this container (this process's cgroup), launchers included, ascending."""
    ours = _cgroup(proc / "self")
    found = []
    for entry in proc.iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError, ValueError):  # it has left meanwhile
            if _is_client(entry) and _cgroup(entry) == ours:
                found.append(int(entry.name))
    return tuple(sorted(found))


def _is_client(entry: Path) -> bool:
    fields = dict(line.split(":\t", 1) for line in (entry / "status").read_text().splitlines() if ":\t" in line)
    if fields["State"].startswith(("Z", "X")):
        return False
    ignored = int(fields["SigIgn"], 16)
    return all(ignored >> (number - 1) & 1 for number in CLIENT_IGNORES)


def _cgroup(entry: Path) -> str:
    return (entry / "cgroup").read_text()


def _start(arguments: Sequence[str], mask: set[signal.Signals] | set[int]) -> int:
    """Start the daemon with our signals unblocked again, in a process group of its own.

    Its own group, and the terminal's foreground where there is one, so that Ctrl-C reaches it once: a second
    interrupt tells the daemon to leave at once.
    """
    pid = os.posix_spawnp(arguments[0], list(arguments), os.environ, setpgroup=0, setsigmask=mask, setsigdef=_DEFAULT)
    if os.isatty(0):
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        with contextlib.suppress(OSError):
            os.tcsetpgrp(0, pid)
        signal.signal(signal.SIGTTOU, before)
    return pid


def _reap() -> dict[int, int]:
    """Every child that has ended, with its exit code (128 + N for signal N)."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        code = os.waitstatus_to_exitcode(status)
        ended[pid] = code if code >= 0 else 128 - code


def _outlast_clients(waited: frozenset[signal.Signals]) -> None:
    said: tuple[int, ...] = ()
    while clients := measuring_clients():
        if clients != said:
            _say(f"the daemon has left; waiting for measuring clients to drain: {clients}")
            said = clients
        signal.sigtimedwait(waited, CLIENT_LOOK)  # what we are told now has nobody left to go to
        _reap()


def _adopt_orphans() -> None:
    import ctypes  # noqa: PLC0415 - a megabyte that a real pid 1 does without

    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        _say("orphans will not be reaped here: prctl failed")


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads our log: no reason to leave, least of all before a client
        os.write(2, f"mpswatch-init: {text}\n".encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
