"""Run a query program under a deadline, with bounded output; when it is late, it and its group are ended.

Only for programs that hold no CUDA context (the control program, nvidia-smi, a container runtime's client).
The measuring client is started by `launch`, which has no way to end anything.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mpswatch.documents import Reason
from mpswatch.errors import MpswatchError

_CHUNK = 1 << 16
_REAP_SECONDS = 0.5


@dataclass(frozen=True)
class Answer:
    """What a program printed and how it ended; `returncode` is negative for a signal; `seconds` is its wall time."""

    stdout: bytes
    stderr: bytes
    returncode: int
    seconds: float


class ProgramError(MpswatchError):
    """A program gave no usable answer. `seconds` is how long that took; the caller maps it to its own reason."""

    def __init__(self, reason: Reason, detail: str, *, seconds: float) -> None:
        super().__init__(reason, detail)
        self.seconds = seconds


class ProgramMissing(ProgramError):  # noqa: N818 -- says what happened, and reads so where it is caught
    """There is no such program (or no such working directory)."""


class ProgramUnusable(ProgramError):  # noqa: N818 -- says what happened, and reads so where it is caught
    """The program is there but cannot be started: no permission, wrong format, no process to be had."""


class ProgramLate(ProgramError):  # noqa: N818 -- says what happened, and reads so where it is caught
    """The deadline passed; the program and everything it started in its session were ended."""


class ProgramTooMuch(ProgramError):  # noqa: N818 -- says what happened, and reads so where it is caught
    """It printed more than the limit and was ended."""


# Ended programs that the kernel has not let go of yet (uninterruptible sleep in a driver): reaped at a later call.
_unreaped: list[subprocess.Popen[bytes]] = []


def ask(
    argv: Sequence[str],
    *,
    deadline: float,
    stdin: bytes = b"",
    limit: int = 1 << 20,
    env: Mapping[str, str] | None = None,
) -> Answer:
    """Run `argv`, write `stdin` to it, and return what it printed within `deadline` seconds.

    The answer is complete when both output pipes are at end-of-file and the program has exited; a grandchild that
    keeps a pipe open counts as late. `limit` bounds the bytes of stdout and stderr together. Raises ProgramMissing,
    ProgramUnusable, ProgramLate, ProgramTooMuch. Safe from any thread; starts none.
    """
    _reap_late_ones()
    began = time.monotonic()
    try:
        program = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if env is None else dict(env),
            start_new_session=True,
            bufsize=0,
        )
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ProgramMissing(
            Reason.SOURCE_FAILED, f"{argv[0]}: {error.strerror}", seconds=time.monotonic() - began
        ) from error
    except OSError as error:
        raise ProgramUnusable(
            Reason.SOURCE_FAILED, f"{argv[0]}: {error.strerror}", seconds=time.monotonic() - began
        ) from error
    try:
        stdout, stderr = _converse(program, stdin, began + deadline, limit, began)
        returncode = _exit_code(program, began + deadline, began)
    except BaseException:
        _end(program)
        raise
    finally:
        for pipe in (program.stdin, program.stdout, program.stderr):
            if pipe is not None:
                pipe.close()
    return Answer(stdout, stderr, returncode, time.monotonic() - began)


def _converse(
    program: subprocess.Popen[bytes], stdin: bytes, until: float, limit: int, began: float
) -> tuple[bytes, bytes]:
    """Write and read until both outputs are at end-of-file."""
    assert program.stdin is not None  # noqa: S101 -- narrows the type: asked for above
    assert program.stdout is not None  # noqa: S101
    assert program.stderr is not None  # noqa: S101
    name = _name(program)
    got: dict[int, bytearray] = {program.stdout.fileno(): bytearray(), program.stderr.fileno(): bytearray()}
    talk = select.poll()  # no descriptor of its own, unlike what `selectors` prefers
    for fd in got:
        os.set_blocking(fd, False)
        talk.register(fd, select.POLLIN)
    os.set_blocking(program.stdin.fileno(), False)
    left = _write_some(program.stdin.fileno(), memoryview(stdin)) if stdin else memoryview(b"")
    if left:
        talk.register(program.stdin.fileno(), select.POLLOUT)
    else:
        program.stdin.close()
    open_outputs = len(got)
    while open_outputs:
        remaining = until - time.monotonic()
        events = talk.poll(math.ceil(remaining * 1000)) if remaining > 0 else []
        if not events and time.monotonic() >= until:
            raise ProgramLate(
                Reason.SOURCE_STUCK,
                f"{name}: no complete answer within {until - began:g} s",
                seconds=time.monotonic() - began,
            )
        for fd, _ in events:
            if fd in got:
                chunk = os.read(fd, _CHUNK)
                got[fd] += chunk
                if not chunk:
                    talk.unregister(fd)
                    open_outputs -= 1
                if sum(map(len, got.values())) > limit:
                    raise ProgramTooMuch(
                        Reason.SOURCE_FAILED,
                        f"{name}: printed more than {limit} bytes",
                        seconds=time.monotonic() - began,
                    )
            else:
                left = _write_some(fd, left)
                if not left:
                    talk.unregister(fd)
                    program.stdin.close()
    first, second = got.values()
    return bytes(first), bytes(second)


def _write_some(fd: int, data: memoryview) -> memoryview:
    try:
        return data[os.write(fd, data) :]
    except BlockingIOError:
        return data
    except BrokenPipeError:
        return data[:0]  # it does not want to hear more; its answer may still be whole


def _exit_code(program: subprocess.Popen[bytes], until: float, began: float) -> int:
    returncode = _wait(program, until)
    if returncode is None:
        raise ProgramLate(
            Reason.SOURCE_STUCK,
            f"{_name(program)}: closed its output but did not exit within {until - began:g} s",
            seconds=time.monotonic() - began,
        )
    return returncode


def _name(program: subprocess.Popen[bytes]) -> str:
    return str(program.args[0] if isinstance(program.args, list) else program.args)


def _wait(program: subprocess.Popen[bytes], until: float) -> int | None:
    try:
        return program.wait(timeout=max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None


def _end(program: subprocess.Popen[bytes]) -> None:
    """End the program's whole session. It has not been reaped yet, so its number cannot be somebody else's."""
    if program.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)  # noqa: TID251 -- a query program: it holds no CUDA context
        if _wait(program, time.monotonic() + _REAP_SECONDS) is None:
            _unreaped.append(program)


def _reap_late_ones() -> None:
    for program in list(_unreaped):
        if program.poll() is not None:
            with contextlib.suppress(ValueError):  # another thread was quicker
                _unreaped.remove(program)
