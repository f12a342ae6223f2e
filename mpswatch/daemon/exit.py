"""Every exit code of every command, in one place (docs/exit-codes.md is checked against it)."""

from __future__ import annotations

import enum


class Exit(enum.IntEnum):
    """What a command's exit code says."""

    OK = 0
    """Done: all of it, and what was looked at is as it should be."""
    FAILED = 1
    """What was asked for could not be done, or what was checked is bad (archive validate, doctor, healthcheck)."""
    USAGE = 2
    """The command line or the configuration is wrong: every fault is named on stderr."""
    REFUSED = 3
    """The sweep was refused before any client of ours started: the reason is on stderr."""
    PARTIAL = 4
    """The sweep ran and its document is written, but not every cap was measured."""
    INTERRUPTED = 5
    """A sweep was ended by Ctrl-C or SIGTERM: the client drained, the partial document is written."""
    PORT = 6
    """The listen address cannot be bound."""
    REHEARSAL = 7
    """A rehearsal and a real stack would have been mixed: run on a rehearsal stack, or demo on a measured archive."""
    INTERNAL = 70
    """A fault of mpswatch's own: the traceback is on stderr."""
    LEFT_AT_ONCE = 130
    """A second Ctrl-C or SIGTERM: left at once; a client that was measuring drains and leaves by itself."""
