"""Where a rehearsal keeps its files, and how it is known for what it is.

DIRECTORY/rehearsal.json       the mark: this directory is a rehearsal's, its director is pid N
DIRECTORY/tell                 socket: what the stack can be told (tell.py)
DIRECTORY/smi                  socket: nvidia-smi's questions
DIRECTORY/bin/                 the control program and nvidia-smi
DIRECTORY/NAME/pipe, log       a control daemon's pipe and log directory, named as a real one's
DIRECTORY/NAME/state/          what its server holds (state.py); DIRECTORY/NAME/faults.json what it was told
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from mpswatch.documents import Reason
from mpswatch.errors import MpswatchError

MARK = "rehearsal.json"
SOCKET = "rehearsal"
REAL_DIRECTORIES = (Path("/tmp/nvidia-mps"), Path("/var/log/nvidia-mps"), Path("/run/nvidia/mps"))  # noqa: S108 (never written: refused)
LONGEST_SOCKET_PATH = 107  # sun_path less its NUL


class RehearsalError(MpswatchError):
    """The rehearsal stack could not do what it was asked."""

    def __init__(self, detail: str, remedy: str | None = None) -> None:
        super().__init__(Reason.REHEARSAL_STACK, detail, remedy)


@dataclass(frozen=True)
class DaemonPaths:
    """The files of one control daemon."""

    name: str
    base: Path

    @property
    def pipe(self) -> Path:
        return self.base / "pipe"

    @property
    def log(self) -> Path:
        return self.base / "log"

    @property
    def state(self) -> Path:
        return self.base / "state"

    @property
    def faults(self) -> Path:
        return self.base / "faults.json"


@dataclass(frozen=True)
class Layout:
    """The files of one stack."""

    directory: Path

    @property
    def mark(self) -> Path:
        return self.directory / MARK

    @property
    def tell(self) -> Path:
        return self.directory / "tell"

    @property
    def smi(self) -> Path:
        return self.directory / "smi"

    @property
    def control_program(self) -> Path:
        return self.directory / "bin" / "nvidia-cuda-mps-control"

    @property
    def nvidia_smi(self) -> Path:
        return self.directory / "bin" / "nvidia-smi"

    def daemon(self, name: str) -> DaemonPaths:
        return DaemonPaths(name, self.directory / name)


def claim(layout: Layout) -> None:
    """Make `layout.directory` a rehearsal's, or raise `RehearsalError`.

    One that cannot be made or written, a directory of a real stack, one with foreign files, and one where a
    rehearsal is running are refused; what a rehearsal that was killed has left behind is removed.
    """
    try:
        _claim(layout)
        layout.directory.mkdir(parents=True, exist_ok=True)
        if not os.access(layout.directory, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise RehearsalError(
            f"{layout.directory} cannot be made: {error.strerror}", "give the rehearsal a directory that you may write"
        ) from None


def _claim(layout: Layout) -> None:
    directory = layout.directory.resolve()
    if any(directory == real or real in directory.parents for real in REAL_DIRECTORIES):
        raise RehearsalError(
            f"{directory} is where a real MPS stack lives", "give the rehearsal a directory of its own"
        )
    if len(str(directory / "default" / "pipe" / "control_privileged")) > LONGEST_SOCKET_PATH:
        raise RehearsalError(f"{directory} is too long a path for sockets", "use a shorter one, below /tmp for example")
    if not directory.exists() or not any(directory.iterdir()):
        return
    pid = director_of(layout)
    if pid is None:
        raise RehearsalError(f"{directory} holds files that no rehearsal made", "give the rehearsal an empty directory")
    if is_director(pid, layout):
        raise RehearsalError(f"a rehearsal is running in {directory} (pid {pid})", "stop that one first")
    clear(layout)


def director_of(layout: Layout) -> int | None:
    """The pid that the mark names; None where there is no mark."""
    try:
        return int(json.loads(layout.mark.read_bytes())["director"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_director(pid: int, layout: Layout) -> bool:
    """Whether process `pid` is the director of this very directory (a pid may have been given to another)."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"direct" in arguments and str(layout.directory).encode() in arguments


def clear(layout: Layout) -> None:
    """Remove what a rehearsal makes, and the directory itself; the caller knows that it is a rehearsal's."""
    shutil.rmtree(layout.directory, ignore_errors=True)
