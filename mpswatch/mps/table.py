"""The table of contexts that `ps` prints: enrichment, never the proof that somebody is a client."""

from __future__ import annotations

import re

from mpswatch.documents import Context, Reason
from mpswatch.mps.lines import MOST_PIDS, Lines, no_such, unexpected
from mpswatch.names import shown
from mpswatch.proc import PID_MAX

HEADER = [b"PID", b"ID", b"SERVER", b"DEVICE", b"NAMESPACE", b"COMMAND"]

_ROW = re.compile(
    rb"([1-9][0-9]{0,6})\s+([0-9]{1,9})\s+([1-9][0-9]{0,6})\s+((?:GPU|MIG)-[0-9a-fA-F-]{1,60})\s+([0-9]{1,19})(?:\s+(.*))?"
)


def contexts(lines: Lines, *, may_be_nothing: bool) -> tuple[tuple[Context, ...] | None, Reason | None]:
    """All that is left of the answer; a table that cannot be read (a command with a newline in it) is unknown."""
    line = lines.take()
    if line is None and may_be_nothing:
        return (), None
    rows = lines.rest()
    while lines.take() is not None:
        pass
    if (line is None and lines.ends_empty) or (line == b"Server not found" and not rows):
        return (), None
    if line is None:
        raise unexpected(None, "ps")
    if no_such(line, "ps"):
        return None, Reason.NOT_SUPPORTED
    if line.split() != HEADER:
        raise unexpected(line, "ps")
    if len(rows) > MOST_PIDS:
        return None, Reason.DAEMON_NONSENSE
    found = [_context(row) for row in rows]
    if any(context is None for context in found):
        return None, Reason.DAEMON_NONSENSE
    return tuple(context for context in found if context is not None), None


def _context(row: bytes) -> Context | None:
    match = _ROW.fullmatch(row.strip())
    if match is None or int(match.group(1)) > PID_MAX or int(match.group(3)) > PID_MAX:
        return None
    return Context(
        pid=int(match.group(1)),
        context_id=int(match.group(2)),
        server_pid=int(match.group(3)),
        device=match.group(4).decode("ascii"),
        pid_namespace=int(match.group(5)),
        command=shown(match.group(6) or b""),
    )
