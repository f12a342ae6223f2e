"""The child's two pipes: the lifeline it reads, and the output it shares with its launcher."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable, Mapping

LINE_LIMIT = 4096
"""Bytes a line may have, newline included: a pipe takes that much in one piece (PIPE_BUF), so lines never mix."""

DETAIL_LIMIT = 600


class Leave(BaseException):
    """The client must go: not an error, and not to be caught by anything that handles errors.

    `reason` is what a `failed` line would say: `stopped` (lifeline closed or `bye` came early) or `deadline`.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class OutputGone(Exception):  # noqa: N818 -- reads so where it is caught
    """Nobody reads what we write: the pipe is broken or full."""


class Output:
    """JSON lines to the daemon. Never written to while work is in flight; never waits."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def write(self, kind: str, body: Mapping[str, object]) -> None:
        """Write one line, whole or not at all. Raises OutputGone."""
        line = json.dumps({kind: body}, separators=(",", ":")).encode("ascii") + b"\n"
        if len(line) > LINE_LIMIT:
            raise ValueError(f"a line of {len(line)} bytes does not go into a pipe in one piece")
        self.write_raw(line)

    def write_raw(self, line: bytes) -> None:
        try:
            written = os.write(self.fd, line)
        except OSError as error:  # EPIPE, or EAGAIN where it is full
            raise OutputGone(str(error)) from error
        if written != len(line):
            raise OutputGone(f"only {written} of {len(line)} bytes were taken")


class Lifeline:
    """A pipe on which the launcher passes on `go` and `bye`; its end-of-file means: leave."""

    def __init__(self, fd: int, deadline: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.fd = fd
        self.deadline = deadline  # on `clock`
        self.clock = clock
        self._heard = b""
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN | select.POLLHUP)

    def look(self, waiting_for: bytes | None = None) -> bool:
        """Look at lifeline and deadline without waiting; raise `Leave` when the client must go.

        Returns whether the word that is waited for has come. Any other word means: leave.
        """
        return self._look(0, waiting_for)

    def wait_for(self, word: bytes) -> None:
        """Sleep until the launcher passes `word` on. Raises `Leave` at end-of-file and at the deadline."""
        while not self._look(max(0.0, self.deadline - self.clock()), word):
            pass

    def rest(self, seconds: float) -> None:
        """Let `seconds` pass, watching. Raises `Leave` as `look` does."""
        end = self.clock() + seconds
        while (left := end - self.clock()) > 0:
            self._look(max(0.0, min(left, self.deadline - self.clock())), None)

    def _look(self, seconds: float, word: bytes | None) -> bool:
        # one millisecond more than asked: a poll that returns just before the deadline would spin
        if self._poll.poll(seconds * 1000 + 1 if seconds else 0):
            chunk = os.read(self.fd, 64)
            if not chunk:
                raise Leave("stopped", "the lifeline was closed")
            self._heard += chunk
        if word is not None and self._heard.startswith(word + b"\n"):
            self._heard = self._heard[len(word) + 1 :]
            return True
        if self._heard:
            raise Leave("stopped", "told {!r} early".format(self._heard[:32].decode("ascii", "replace")))
        if self.clock() >= self.deadline:
            raise Leave("deadline", "its time was up")
        return False


def clip(text: str, most: int = DETAIL_LIMIT) -> str:
    """At most `most` characters, none of which JSON escapes into many bytes."""
    plain = "".join(character if " " <= character <= "~" else "?" for character in text)
    return plain if len(plain) <= most else plain[: most - 3] + "..."
