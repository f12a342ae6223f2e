"""Control daemons that run on this host, found without being told: where their sockets are, and their logs.

The kernel's list of Unix sockets serves whoever asks, other users' daemons included. What it lacks (a daemon in a
network namespace of its own) is looked for in the environments of the control programs, as far as they may be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mpswatch.mps.protocol import daemon_pid, daemon_process, is_socket, started_for_3
from mpswatch.proc import Processes, ProcessGone

CONTROL = "nvidia-cuda-mps-control"
DEFAULT_PIPE_DIRECTORY = Path("/tmp/nvidia-mps")  # noqa: S108 - the control daemon's own default
ROOTS_PIPE_DIRECTORY_3 = Path("/run/nvidia-mps")
"""The default of a control daemon of protocol 3 that root runs, as documented."""
DEFAULT_LOG_DIRECTORY = Path("/var/log/nvidia-mps")

_SOCKETS = ("control", "control_privileged")
_MOST_LINES = 100_000
_LISTENS = 0x10000  # __SO_ACCEPTCON in the flags


@dataclass(frozen=True, slots=True)
class Found:
    """One control daemon. `log_directory` is None where nothing tells it."""

    pipe_directory: Path
    log_directory: Path | None


def discover(processes: Processes) -> tuple[Found, ...]:
    """The control daemons whose pipe directory can be entered here, by pipe directory. Rehearsals are none."""
    directories = listening(processes) | by_environment(processes)
    return tuple(Found(path, log_directory(path, processes)) for path in sorted(directories))


def listening(processes: Processes, *, rehearsals: bool = False) -> frozenset[Path]:
    """The pipe directories in which both sockets of a control daemon listen, by the kernel's own list: cheap.

    Real ones, or `rehearsals` alone: the two never come together.
    """
    return frozenset(path for path in _listening(processes.root) if _is_there(path, rehearsals=rehearsals))


def by_environment(processes: Processes) -> frozenset[Path]:
    """The pipe directories that control programs were given, as far as they may be asked: all of /proc is read."""
    return frozenset(path for path in _by_environment(processes) if _is_there(path))


def _is_there(path: Path, *, rehearsals: bool = False) -> bool:
    # a name that cannot be printed is no control daemon's, and would be a label
    return str(path).isprintable() and is_socket(path / "control") and is_socket(path / "rehearsal") == rehearsals


def log_directory(pipe_directory: Path, processes: Processes) -> Path | None:
    """Where the daemon writes its logs: its own word, the device plugin's layout beside the pipes, or the default."""
    pid = daemon_pid(pipe_directory)
    environment = processes.environment(pid) if pid is not None and _is_control(pid, processes) else {}
    said = environment.get("CUDA_MPS_LOG_DIRECTORY")
    if said:
        return Path(said)
    if pipe_directory.name == "pipe" and (pipe_directory.parent / "log").is_dir():
        return pipe_directory.parent / "log"
    if environment or pipe_directory == DEFAULT_PIPE_DIRECTORY:
        return DEFAULT_LOG_DIRECTORY
    return None


def visible_devices(pipe_directory: Path, processes: Processes) -> tuple[str, ...] | None:
    """CUDA_VISIBLE_DEVICES of the daemon, the GPUs that its clients may use; None for all, or where nothing tells."""
    process = daemon_process(pipe_directory, processes)
    return None if process is None else devices_visible_to(*process, processes)


@lru_cache(maxsize=64)  # an environment never changes: what a process was started with
def devices_visible_to(pid: int, _start_ticks: int, processes: Processes) -> tuple[str, ...] | None:
    """As `visible_devices`, of the control daemon that is process `pid`."""
    if not _is_control(pid, processes):
        return None
    said = processes.environment(pid).get("CUDA_VISIBLE_DEVICES")
    return None if said is None else tuple(word for part in said.split(",") if (word := part.strip()))


def _listening(root: Path) -> Iterator[Path]:
    """Folders with both of a control daemon's sockets listening in them, from /proc/net/unix."""
    found: dict[str, set[str]] = {}
    try:
        with (root / "net/unix").open("rb") as lines:
            for number, line in enumerate(lines):
                if b"/control" not in line:  # most are not
                    continue
                words = line.split(None, 7)
                if number >= _MOST_LINES or len(words) < 8:
                    continue
                folder, _, name = words[7].rstrip(b"\n").decode("utf-8", "surrogateescape").rpartition("/")
                if name in _SOCKETS and folder.startswith("/") and _flags(words[3]) & _LISTENS:
                    found.setdefault(folder, set()).add(name)
    except OSError:
        return
    yield from (Path(folder) for folder, names in found.items() if names == set(_SOCKETS))


def _flags(word: bytes) -> int:
    try:
        return int(word, 16)
    except ValueError:
        return 0


def _by_environment(processes: Processes) -> Iterator[Path]:
    try:
        names = [path.name for path in processes.root.iterdir()]
    except OSError:
        return
    for name in names:
        if name.isdigit() and _is_control(int(name), processes):
            environment = processes.environment(int(name))
            if environment:
                yield Path(environment.get("CUDA_MPS_PIPE_DIRECTORY") or _default(int(name), processes))


def _default(pid: int, processes: Processes) -> Path:
    try:
        who = processes.identity(pid)
        roots = who.uid == 0 and started_for_3(pid, who.start_ticks, processes) is not None
    except ProcessGone:
        roots = False
    return ROOTS_PIPE_DIRECTORY_3 if roots else DEFAULT_PIPE_DIRECTORY


def _is_control(pid: int, processes: Processes) -> bool:
    try:
        if not processes.identity(pid).command.startswith("nvidia-cuda-mps"):
            return False
        arguments = processes.facts(pid).arguments
    except ProcessGone:
        return False
    return bool(arguments) and Path(arguments[0]).name == CONTROL
