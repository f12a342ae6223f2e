"""Which protocol a control daemon speaks. Protocol 3 is recognised before it is asked, never read as "no clients".

What is known of it comes from NVIDIA's MPS documentation for drivers 615 and 620 ("MPS v3 Interface" and
"MPS v3 Namespaces"); none was ever seen running. It is opt-in (`-p 3`, `--protocol 3`, or
CUDA_MPS_PROTOCOL_VERSION=3 in the daemon's environment, which wins), its control program follows the running
daemon's protocol by itself, has `module verb` commands in place of the shell, and keeps one folder a server
in the pipe directory, each with a socket `control` and one in a folder for each namespace.
"""

from __future__ import annotations

import os
import stat
from functools import lru_cache
from itertools import islice
from pathlib import Path

from mpswatch.proc import PID_MAX, Processes, ProcessGone

_FOLDERS_LOOKED_AT = 64


@lru_cache(maxsize=64)  # asked at each poll, and what a process was started with never changes
def started_for_3(pid: int, _start_ticks: int, processes: Processes) -> str | None:
    """What process `pid`, if a control daemon, was started with that makes it speak protocol 3, in words, or None."""
    try:
        facts = processes.facts(pid)
    except ProcessGone:
        return None
    if not facts.command.startswith("nvidia-cuda-mps"):
        return None  # an old pid file: the number is somebody else's by now
    version = processes.environment(pid).get("CUDA_MPS_PROTOCOL_VERSION")
    if version is not None:
        return f"CUDA_MPS_PROTOCOL_VERSION={version} in the daemon's environment" if version.strip() == "3" else None
    for word, following in zip(facts.arguments, (*facts.arguments[1:], ""), strict=True):
        if word in {"-p3", "--protocol=3"} or (word in {"-p", "--protocol"} and following == "3"):
            return f"the daemon was started with {word} {following}".rstrip()
    return None


def daemon_process(pipe_directory: Path, processes: Processes) -> tuple[int, int] | None:
    """Pid and start ticks of the process that the daemon's pid file names; it may be old: look who that is."""
    pid = daemon_pid(pipe_directory)
    ticks = None if pid is None else processes.start_ticks(pid)
    return None if pid is None or ticks is None else (pid, ticks)


def daemon_pid(pipe_directory: Path) -> int | None:
    """The pid that the daemon wrote beside its sockets; None where there is none. It may be old: look who that is."""
    try:
        with open(pipe_directory / "nvidia-cuda-mps-control.pid", "rb") as file:
            text = file.read(32).strip()
    except OSError:
        return None
    return int(text) if text.isdigit() and 0 < int(text) <= PID_MAX else None


def folder_of_a_server(pipe_directory: Path) -> str | None:
    """What in `pipe_directory` only a daemon of protocol 3 makes, in words, or None."""
    try:
        with os.scandir(pipe_directory) as entries:
            folders = [entry.path for entry in islice(entries, _FOLDERS_LOOKED_AT) if entry.is_dir()]
        for folder in folders:
            if is_socket(Path(folder) / "control"):
                return f"the pipe directory holds a server's folder with a socket, {Path(folder).name!r}"
    except OSError:
        return None
    return None


def is_socket(path: Path) -> bool:
    """Whether there is a socket at `path`; False where this user may not look."""
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False
