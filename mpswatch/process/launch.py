"""Start the measuring client's launcher, which nobody here can end: it leaves when its lifeline closes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from mpswatch.documents import Reason
from mpswatch.errors import MpswatchError

LINE_LIMIT = 4096
"""Bytes a line may have, its newline included: POSIX writes that much into a pipe in one piece (PIPE_BUF)."""

SEND_DEADLINE = 1.0
"""Seconds that `send` waits for room in the pipe: the launcher reads all the time, so a full pipe means it is lost."""

_TRAMPOLINE = Path(__file__).with_name("trampoline.py")


class LauncherGone(MpswatchError):  # noqa: N818 -- says what happened, and reads so where it is caught
    """The launcher no longer reads what is sent to it. Its children drain and leave by themselves."""

    def __init__(self, detail: str) -> None:
        super().__init__(Reason.CLIENT_DIED, detail)


class Launched:
    """A running launcher, seen from the daemon: two pipe ends and a pid.

    There is deliberately no way to signal or end it. Dropping the object, or the daemon's death, closes the
    lifeline, and that is what asks it to leave.
    """

    def __init__(self, pid: int, send_fd: int, receive_fd: int) -> None:
        self.pid = pid
        self.receive_fd = receive_fd
        self._send_fd: int | None = send_fd
        self._receive_open = True
        self._status: int | None = None

    def send(self, line: bytes) -> None:
        """Write one line (newline included, under 4096 bytes, so that it arrives whole). Raises `LauncherGone`."""
        if not line.endswith(b"\n") or len(line) > LINE_LIMIT:
            raise ValueError(f"one line of at most {LINE_LIMIT} bytes, not {len(line)}")
        if self._send_fd is None:
            raise LauncherGone("the lifeline is closed")
        give_up = time.monotonic() + SEND_DEADLINE
        while True:
            try:
                os.write(self._send_fd, line)  # a pipe takes PIPE_BUF bytes whole or not at all
            except BlockingIOError:
                left = give_up - time.monotonic()
                if left <= 0:
                    raise LauncherGone("the launcher does not read its pipe") from None
                _writable(self._send_fd, left)
            except OSError as error:
                raise LauncherGone(f"the launcher's pipe: {error.strerror}") from error
            else:
                return

    def make_room(self, size: int) -> None:
        """Let the pipe take `size` bytes before anybody reads; it stays as it is where the system allows no more."""
        if self._send_fd is not None:
            with contextlib.suppress(OSError):
                fcntl.fcntl(self._send_fd, fcntl.F_SETPIPE_SZ, size)

    def hang_up(self) -> None:
        """Close the lifeline and keep listening: the launcher lets its children drain, reports them gone, leaves."""
        if self._send_fd is not None:
            os.close(self._send_fd)
            self._send_fd = None

    def close(self) -> None:
        """Close the lifeline and stop listening. The launcher leaves by itself once its last child has left."""
        self.hang_up()
        if self._receive_open:
            self._receive_open = False
            os.close(self.receive_fd)

    def exited(self) -> int | None:
        """The exit code (negative: the signal's number) once the launcher has ended, else None. Never waits."""
        if self._status is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = self.pid, 0  # somebody else in this process reaped it
            if pid == self.pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def __del__(self) -> None:
        self.close()


def launch(argv: Sequence[str], *, env: Mapping[str, str], log_fd: int, cwd: str = "/") -> Launched:
    """Start `argv` through the trampoline: every ignorable signal ignored, own session, only descriptors 0 to 2.

    Standard input and output are pipes whose other ends `Launched` holds, standard error is `log_fd`, which
    should be a file: a library that writes to a full pipe while work is in flight would hold the work up.
    `env` is the whole environment. A program that cannot be started shows as exit code 127 with the reason in
    the log. Raises OSError where not even the trampoline starts (out of processes or descriptors).
    """
    ours: list[int] = []
    theirs: list[int] = []
    try:
        stdin, send_fd = _pipe()
        theirs.append(stdin)
        ours.append(send_fd)
        receive_fd, stdout = _pipe()
        theirs.append(stdout)
        ours.append(receive_fd)
        os.set_blocking(send_fd, False)
        os.set_blocking(receive_fd, False)
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-B", str(_TRAMPOLINE), cwd, *argv],
            dict(env),
            file_actions=[  # the log first: it may itself be descriptor 0 or 1
                (os.POSIX_SPAWN_DUP2, log_fd, 2),
                (os.POSIX_SPAWN_DUP2, stdin, 0),
                (os.POSIX_SPAWN_DUP2, stdout, 1),
            ],
        )
    except BaseException:
        for fd in ours:
            os.close(fd)
        raise
    finally:
        for fd in theirs:
            os.close(fd)
    return Launched(pid, send_fd, receive_fd)


def _pipe() -> tuple[int, int]:
    """A pipe whose ends lie above 2, so that giving them their places cannot run over one that is still needed."""
    ends = os.pipe2(os.O_CLOEXEC)
    try:
        high = fcntl.fcntl(ends[0], fcntl.F_DUPFD_CLOEXEC, 3), fcntl.fcntl(ends[1], fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        for fd in ends:
            os.close(fd)
    return high


def _writable(fd: int, seconds: float) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    poll.poll(seconds * 1000)
