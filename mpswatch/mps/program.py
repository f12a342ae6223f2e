"""Running the control program once: what it printed, or in one bounded word why there is nothing to read."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from mpswatch.documents import Reason
from mpswatch.errors import MpswatchError
from mpswatch.mps.lines import ReplyError
from mpswatch.names import clip, printable
from mpswatch.process.ask import Answer, ProgramLate, ProgramMissing, ProgramTooMuch, ProgramUnusable, ask

ABSENT = b"Cannot find MPS control daemon process"
DROPPED = b"Cannot send command to MPS control daemon process"
PAUSES_WHEN_DROPPED = (0.02, 0.1, 0.0)
"""Seconds before a question that the daemon dropped is asked again; a third one that is dropped is an error. On an
H200 five of about 290 sweeps met it, with several control programs asking one daemon at the same moment."""


class DaemonAbsent(MpswatchError):  # noqa: N818 -- says what happened, and reads so where it is caught
    """The control program says that no control daemon runs on this pipe directory."""


def said_by(
    program: str, *, until: float, environment: Mapping[str, str], arguments: Sequence[str] = (), script: bytes = b""
) -> bytes:
    """What `program` printed, asked by `script` on its standard input or by `arguments`, before the clock is `until`.

    Raises `DaemonAbsent`, `ReplyError`, or an `MpswatchError` for what the program or the daemon did.
    """
    for pause in PAUSES_WHEN_DROPPED:
        answer = _run([program, *arguments], script, until - time.monotonic(), environment)
        if not _was_dropped(answer) or time.monotonic() + pause >= until:
            break
        time.sleep(pause)
    _believe(program, answer)
    return answer.stdout


@lru_cache(maxsize=64)  # reading the whole environment at each poll costs a fifth of the connection
def environment_of(pipe_directory: Path) -> Mapping[str, str]:
    """Ours, without what would make the control program ask another daemon or speak another protocol."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("CUDA_", "NOTIFY_SOCKET"))}
    return {**kept, "CUDA_MPS_PIPE_DIRECTORY": str(pipe_directory), "LC_ALL": "C"}


def _run(argv: Sequence[str], script: bytes, seconds: float, environment: Mapping[str, str]) -> Answer:
    late = "the control daemon does not answer: it hangs, is stopped, or waits on something"
    if seconds <= 0:
        raise MpswatchError(Reason.DAEMON_SILENT, late)
    try:
        return ask(argv, deadline=seconds, stdin=script, env=environment)
    except ProgramMissing as error:
        remedy = "install the driver's compute package, or set mps.control_program"
        raise MpswatchError(Reason.CONTROL_PROGRAM_MISSING, f"{argv[0]} is not there: {error.detail}", remedy) from None
    except ProgramLate as error:
        raise MpswatchError(Reason.DAEMON_SILENT, f"{late} ({error.detail})") from None
    except ProgramTooMuch as error:
        raise ReplyError(Reason.DAEMON_NONSENSE, error.detail) from None
    except ProgramUnusable as error:
        raise MpswatchError(Reason.SOURCE_FAILED, error.detail) from None


def _was_dropped(answer: Answer) -> bool:
    """Whether the daemon hung up without a word, as it does now and then while two programs ask at once."""
    said = answer.stdout + answer.stderr
    return answer.returncode in {0, 1} and (not said.strip() or DROPPED in said)


def _believe(program: str, answer: Answer) -> None:
    """Raise what an exit status and a known sentence mean; a reply that is left is for the grammar."""
    said = answer.stdout.strip() or answer.stderr.strip()
    if said == ABSENT or (answer.returncode != 0 and ABSENT in answer.stdout + answer.stderr):
        raise DaemonAbsent(Reason.DAEMON_ABSENT, "no control daemon runs on this pipe directory")
    if answer.returncode != 0:
        ended = f"signal {-answer.returncode}" if answer.returncode < 0 else f"exit status {answer.returncode}"
        words = clip(printable(said[:400]), 120)
        raise ReplyError(Reason.DAEMON_NONSENSE, f"{program} ended with {ended}: {words!r}")
