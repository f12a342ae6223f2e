"""One look at one control daemon: one connection, and a second one only when the server list is another."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from mpswatch.documents import DaemonLook, Envelope, Reason, ServerLook, SourceLook, State
from mpswatch.errors import MpswatchError
from mpswatch.mps import commands, grammar, protocol
from mpswatch.mps.discovery import visible_devices
from mpswatch.mps.servers import server_look
from mpswatch.names import clip, printable
from mpswatch.proc import Processes
from mpswatch.process.ask import Answer, ProgramLate, ProgramMissing, ProgramTooMuch, ProgramUnusable, ask

SOURCE = "nvidia-cuda-mps-control"
ABSENT = b"Cannot find MPS control daemon process"
DROPPED = b"Cannot send command to MPS control daemon process"
PAUSES_WHEN_DROPPED = (0.02, 0.1, 0.0)
"""Seconds before a question that the daemon dropped is asked again; a third one that is dropped is an error. On an
H200 five of about 290 sweeps met it, with several control programs asking one daemon at the same moment."""
MOST_SERVERS = 64
"""Servers asked about on one connection; a control daemon runs one, and a few while it changes over."""


class DaemonAbsent(MpswatchError):  # noqa: N818 -- says what happened, and reads so where it is caught
    """The control program says that no control daemon runs on this pipe directory."""


def is_rehearsal(pipe_directory: Path) -> bool:
    """Whether this is the pipe directory of a rehearsal stack: the socket alone marks it."""
    return protocol.is_socket(pipe_directory / "rehearsal")


def now() -> datetime:
    """The wall clock."""
    return datetime.now(UTC)


def look(
    *,
    name: str,
    pipe_directory: Path,
    known_servers: Sequence[int],
    program: str,
    deadline: float,
    processes: Processes,
    with_contexts: bool = True,
    clock: Callable[[], datetime] = now,
) -> tuple[DaemonLook, SourceLook]:
    """Ask one control daemon everything, within `deadline` seconds in all. Whatever goes wrong is in the result.

    `known_servers` are those of the last look: about them it asks on the first connection. Without
    `with_contexts` the table of contexts is left out (a sweep's own looks).
    """
    began = time.monotonic()
    simulated = is_rehearsal(pipe_directory)
    session, session_reason = _our_session(pipe_directory, processes)
    unknown: dict[str, Reason] = {} if session_reason is None else {"our_session": session_reason}
    try:
        reply, asked = _converse(pipe_directory, known_servers, program, began + deadline, with_contexts=with_contexts)
        if session is None:  # a sweep may have begun while the daemon took its time
            session, _ = _our_session(pipe_directory, processes)
        if not reply.servers and (shown := protocol.speaks_protocol_3(pipe_directory, processes)):
            raise grammar.OtherProtocol(shown, protocol="3")
    except MpswatchError as found:
        error = _told_apart(found, pipe_directory, processes)
        up = _up(error)
        unknown["default_active_thread_percentage"] = error.reason
        spoken = error.protocol if isinstance(error, grammar.OtherProtocol) else None
        if spoken is None:
            unknown["protocol"] = error.reason
        look = DaemonLook(
            name=name,
            pipe_directory=str(pipe_directory),
            up=up,
            up_reason=None if up else error.reason,
            protocol=spoken,
            servers=_envelope(None, clock(), "unknown", {"detail": error.detail}, error.reason),
            our_session=session,
            unknown=unknown,
        )
        return look, _source(name, began, error)
    servers = tuple(
        server_look(
            pid,
            reply=reply.about.get(pid),
            contexts=reply.contexts,
            contexts_reason=reply.contexts_reason,
            processes=processes,
            simulated=simulated,
        )
        for pid in reply.servers
    )
    if reply.default_active_thread_percentage is None:
        unknown["default_active_thread_percentage"] = Reason.NOT_SUPPORTED
    evidence = {"basis": "the daemon's own lists", "connections": asked}
    look = DaemonLook(
        name=name,
        pipe_directory=str(pipe_directory),
        up=True,
        protocol="2",
        default_active_thread_percentage=reply.default_active_thread_percentage,
        servers=_envelope(servers, clock(), "simulated" if simulated else "measured", evidence, None),
        our_session=session,
        visible_devices=visible_devices(pipe_directory, processes) if with_contexts else None,
        unknown=unknown,
    )
    return look, _source(name, began, None)


def _converse(
    pipe_directory: Path, known_servers: Sequence[int], program: str, until: float, *, with_contexts: bool
) -> tuple[grammar.Reply, int]:
    servers = tuple(known_servers)[:MOST_SERVERS]
    environment = _environment(pipe_directory)
    reply = _ask_once(servers, program, until, environment, with_contexts=with_contexts)
    if set(reply.servers[:MOST_SERVERS]) == set(servers):
        return reply, 1
    servers = reply.servers[:MOST_SERVERS]
    return _ask_once(servers, program, until, environment, with_contexts=with_contexts), 2


def _ask_once(
    servers: Sequence[int], program: str, until: float, environment: Mapping[str, str], *, with_contexts: bool
) -> grammar.Reply:
    script = commands.script(servers, with_contexts=with_contexts)
    for pause in PAUSES_WHEN_DROPPED:
        answer = _run(program, script, until - time.monotonic(), environment)
        if not _was_dropped(answer) or time.monotonic() + pause >= until:
            break
        time.sleep(pause)
    _believe(program, answer)
    return grammar.parse(answer.stdout, servers=servers, with_contexts=with_contexts)


def _run(program: str, script: bytes, seconds: float, environment: Mapping[str, str]) -> Answer:
    late = "the control daemon does not answer: it hangs, is stopped, or waits on something"
    if seconds <= 0:
        raise MpswatchError(Reason.DAEMON_SILENT, late)
    try:
        return ask([program], deadline=seconds, stdin=script, env=environment)
    except ProgramMissing as error:
        remedy = "install the driver's compute package, or set mps.control_program"
        raise MpswatchError(Reason.CONTROL_PROGRAM_MISSING, f"{program} is not there: {error.detail}", remedy) from None
    except ProgramLate as error:
        raise MpswatchError(Reason.DAEMON_SILENT, f"{late} ({error.detail})") from None
    except ProgramTooMuch as error:
        raise grammar.ReplyError(Reason.DAEMON_NONSENSE, error.detail) from None
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
        raise grammar.ReplyError(Reason.DAEMON_NONSENSE, f"{program} ended with {ended}: {words!r}")


@lru_cache(maxsize=64)  # reading the whole environment at each poll costs a fifth of the connection
def _environment(pipe_directory: Path) -> Mapping[str, str]:
    """Ours, without what would make the control program ask another daemon or speak another protocol."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("CUDA_", "NOTIFY_SOCKET"))}
    return {**kept, "CUDA_MPS_PIPE_DIRECTORY": str(pipe_directory), "LC_ALL": "C"}


def _told_apart(error: MpswatchError, pipe_directory: Path, processes: Processes) -> MpswatchError:
    """Whether "no daemon" is really "may not look", and nonsense is really another protocol."""
    if isinstance(error, DaemonAbsent):
        try:
            (pipe_directory / "control").stat()
        except PermissionError:
            return MpswatchError(Reason.PERMISSION, f"this user may not enter the pipe directory {pipe_directory}")
        except OSError:
            return error
    if isinstance(error, grammar.ReplyError):
        shown = protocol.speaks_protocol_3(pipe_directory, processes)
        if shown:
            return grammar.OtherProtocol(f"{shown}; {error.detail}", protocol="3")
    return error


def _up(error: MpswatchError) -> bool | None:
    if isinstance(error, grammar.OtherProtocol):
        return True
    return False if isinstance(error, DaemonAbsent) else None


def _our_session(pipe_directory: Path, processes: Processes) -> tuple[int | None, Reason | None]:
    """The session of the measuring client that holds the pipe directory's lock (its launcher leads that session)."""
    try:
        holders = processes.flock_holders(pipe_directory)
    except PermissionError:
        return None, Reason.PERMISSION
    except (OSError, ValueError):
        return None, Reason.SOURCE_FAILED if pipe_directory.exists() else None
    if len(holders) > 1:
        return None, Reason.IDENTITY_AMBIGUOUS
    return (holders[0] if holders else None), None


def _envelope(
    value: tuple[ServerLook, ...] | None,
    measured_at: datetime,
    state: State,
    evidence: dict[str, Any],
    reason: Reason | None,
) -> Envelope[tuple[ServerLook, ...]]:
    return Envelope(
        value=value, state=state, source=SOURCE, measured_at=measured_at, evidence=evidence, unknown_reason=reason
    )


def _source(name: str, began: float, error: MpswatchError | None) -> SourceLook:
    return SourceLook(
        source="mps",
        daemon=name,
        success=error is None,
        duration_seconds=time.monotonic() - began,
        reason=error.reason if error else None,
        detail=error.detail if error else None,
    )
