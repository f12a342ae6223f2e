"""Signals: everything that can be ignored is, from before the library is imported to the end."""

from __future__ import annotations

import signal

# SIGCHLD ignored would make waitpid fail; the synchronous faults must end a process that is broken.
NOT_IGNORED = frozenset(
    {
        signal.SIGKILL,
        signal.SIGSTOP,
        signal.SIGCHLD,
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGTRAP,
        signal.SIGSYS,
    }
)


def ignore_signals() -> None:
    """The trampoline did this before exec; a container runtime has no trampoline, and a library may undo it."""
    for number in signal.valid_signals() - NOT_IGNORED:
        signal.signal(number, signal.SIG_IGN)
