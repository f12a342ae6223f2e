"""Run first in the launcher's process: own session, no signal that can be ignored, no stray descriptor; then exec.

`python -I -S trampoline.py CWD PROGRAM ARGUMENT...`

A disposition of SIG_IGN survives exec and fork, so from the first instruction of the program, and in every child
that it forks, a Ctrl-C, a `systemctl stop` or a closed terminal cannot end a client with work in flight
(mps-facts 1: SIGTERM killed a neighbour in 7 of 12 trials). A `preexec_fn` would do this between fork and exec in
a process with threads; a program of its own does not have that danger.

Standing alone on purpose: it is run by path, under `-I`, and imports nothing of mpswatch.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

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

EXEC_FAILED = 127


def ignore_signals() -> None:
    """Set every signal that can be ignored to SIG_IGN, real-time signals included."""
    for number in signal.valid_signals() - NOT_IGNORED:
        signal.signal(number, signal.SIG_IGN)


def close_other_descriptors() -> None:
    """Close everything above stderr: a listening socket that is not ours must not live as long as the client."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 -- pathlib is not worth its import time here
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the descriptor that listdir itself used
                os.close(int(name))


def main() -> None:
    """Become the program named on the command line. Ends with 127 and one line on stderr where that fails."""
    directory, program, *arguments = sys.argv[1:]
    ignore_signals()
    with contextlib.suppress(PermissionError):  # it leads a session already
        os.setsid()
    close_other_descriptors()
    try:
        os.chdir(directory)
        os.execvp(program, [program, *arguments])  # noqa: S606 -- no shell is wanted
    except OSError as error:
        os.write(2, f"mpswatch: {program}: {error.strerror}\n".encode("utf-8", "replace"))
        os._exit(EXEC_FAILED)


if __name__ == "__main__":
    main()
