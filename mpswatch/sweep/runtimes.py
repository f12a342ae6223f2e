"""The launcher elsewhere than as a plain process of ours: in a container, or by a command of your own.

Ending follows the first rule in each: nobody here ends it. `run -i` without a terminal and with `--sig-proxy=false`
passes no signal on, so that what the launcher sees is end-of-file, whatever becomes of the program or of us. What
`exec` cannot promise: it shares its container's fate, and a container that is stopped while a cell runs ends the client
with work in flight. So does a memory limit, which is why none is set, and none is taken in `arguments`.
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from mpswatch.documents import Reason
from mpswatch.names import shown
from mpswatch.proc import Processes, ProcessFacts
from mpswatch.process.launch import Launched, LauncherGone, launch
from mpswatch.sweep.runtime import PATH, ClientProgramError, client_environment, refused_variables

CLIENT_IN_CONTAINER = "/mpswatch-client.pyz"
LABEL = "mpswatch.pipe-directory"

_REFUSED = ("-t", "--tty", "-it", "-ti", "-d", "--detach", "-m", "--memory", "--sig-proxy", "--restart", "--rm", "-i")
_ROOM = 1 << 18
_LINE = 3000

BOOTSTRAP = """
import base64,os,runpy,sys
d=b""
while not d.endswith(b"\\n.\\n"):
    p=os.read(0,65536)
    if not p: os._exit(3)
    d+=p
f=os.memfd_create("mpswatch-client")
os.write(f,base64.b64decode(d[:-3]))
runpy.run_path("/proc/self/fd/%d"%f,run_name="__main__")
"""
"""Reads the client from standard input, up to a line with a full stop, and runs it: where no file can be mounted."""


def refused_arguments(arguments: Sequence[str]) -> tuple[str, ...]:
    """Those of `arguments` that would end the client or come between it and its lifeline."""
    return tuple(word for word in arguments if word.partition("=")[0] in _REFUSED or word.startswith("--memory"))


class _Elsewhere:
    """What these runtimes share: the launcher is known by the lock that it holds on the pipe directory."""

    processes: Processes
    pipes: dict[int, Path]

    def launcher_pid(self, launched: Launched) -> int | None:
        """The launcher's pid as this host numbers it, None before it holds the lock or where it is ambiguous."""
        try:
            holders = self.processes.flock_holders(self.pipes[launched.pid])
        except (KeyError, OSError):
            return None
        return holders[0] if len(holders) == 1 else None

    def is_ours(self, launched: Launched, facts: ProcessFacts) -> bool:
        """A container's first process leads its session, and its children stay in it."""
        launcher = self.launcher_pid(launched)
        return launcher is not None and facts.session == launcher


@dataclass(frozen=True, kw_only=True)
class ContainerRuntime(_Elsewhere):
    """`docker` or `podman`: `run` an `image`, or `exec` into a running `container` (exactly one of the two).

    The client is mounted for `run` and handed over on standard input for `exec`, so any image with `python` and torch
    serves. `arguments` are added before the image (`run`) or the container (`exec`). `uid` is whom it runs as.
    """

    name: Literal["docker", "podman"]
    client: Path
    uid: int
    image: str | None = None
    container: str | None = None
    program: str | None = None
    python: str = "python3"
    backend: Literal["torch", "numpy"] = "torch"
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    processes: Processes = field(default_factory=Processes)
    pipes: dict[int, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_variables(self.environment)
        if refused := refused_arguments(self.arguments):
            raise ClientProgramError(
                Reason.NOT_SUPPORTED,
                f"{self.name} may not be given {', '.join(refused)}: it could end a client with work in flight",
                "take it out of sweep.client.arguments",
            )
        if (self.image is None) == (self.container is None):
            raise ClientProgramError(Reason.NOT_SUPPORTED, f"{self.name} needs an image, or a container to exec into")

    def describe(self) -> str:
        what = f"run {self.image}" if self.container is None else f"exec {self.container}"
        return f"{self.name} {shown(what)} {shown(self.python)} as uid {self.uid}"

    def start(self, *, pipe_directory: Path, gpu_uuid: str, log_fd: int) -> Launched:
        program = _found(self.program or self.name)
        variables = client_environment(pipe_directory, gpu_uuid, self.environment)
        words = [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]
        told = ["--backend", self.backend, "--pipe-directory", str(pipe_directory)]
        if self.image is not None:
            argv = [
                program, "run", "--rm", "-i", "--sig-proxy=false", "--pull=never", "--log-driver=none",
                "--network=none", "--ipc=host", "--user", str(self.uid), "--label", f"{LABEL}={pipe_directory}",
                "-v", f"{self.client}:{CLIENT_IN_CONTAINER}:ro", "-v", f"{pipe_directory}:{pipe_directory}",
                *self._gpu(gpu_uuid), *words, *self.arguments, "--entrypoint", self.python, self.image,
                "-B", CLIENT_IN_CONTAINER, *told,
            ]  # fmt: skip
            launched = launch(argv, env=_environment(), log_fd=log_fd)
        else:
            argv = [program, "exec", "-i", "--user", str(self.uid), *words, *self.arguments, str(self.container)]
            argv += [self.python, "-B", "-c", BOOTSTRAP, *told]
            launched = launch(argv, env=_environment(), log_fd=log_fd)
            hand_over(self.client, launched)
        self.pipes[launched.pid] = pipe_directory
        return launched

    def _gpu(self, gpu_uuid: str) -> list[str]:
        if self.backend == "numpy":  # a rehearsal has none
            return []
        return ["--gpus", f"device={gpu_uuid}"] if self.name == "docker" else ["--device", f"nvidia.com/gpu={gpu_uuid}"]


@dataclass(frozen=True, kw_only=True)
class CommandRuntime(_Elsewhere):
    """A command of your own. In its words `{client}`, `{pipe_directory}`, `{gpu}`, `{uid}`, `{backend}` are replaced.

    A word `{bootstrap}` is a program for `python -c` that takes the client from standard input instead. It must run
    `python -B CLIENT --backend … --pipe-directory …` with standard input and output passed through, and pass no signal.
    """

    command: tuple[str, ...]
    client: Path
    uid: int
    backend: Literal["torch", "numpy"] = "torch"
    environment: Mapping[str, str] = field(default_factory=dict)
    processes: Processes = field(default_factory=Processes)
    pipes: dict[int, Path] = field(default_factory=dict)
    name: str = "command"

    def __post_init__(self) -> None:
        _check_variables(self.environment)

    def describe(self) -> str:
        return f"command {shown(' '.join(self.command))} as uid {self.uid}"

    def start(self, *, pipe_directory: Path, gpu_uuid: str, log_fd: int) -> Launched:
        values = {
            "{client}": str(self.client),
            "{pipe_directory}": str(pipe_directory),
            "{gpu}": gpu_uuid,
            "{uid}": str(self.uid),
            "{backend}": self.backend,
        }
        argv = [BOOTSTRAP if word == "{bootstrap}" else _replaced(word, values) for word in self.command]
        argv[0] = _found(argv[0])
        variables = client_environment(pipe_directory, gpu_uuid, self.environment)
        launched = launch(argv, env=_environment() | variables, log_fd=log_fd)
        if "{bootstrap}" in self.command:
            hand_over(self.client, launched)
        self.pipes[launched.pid] = pipe_directory
        return launched


def hand_over(client: Path, launched: Launched) -> None:
    """Send the client's bytes ahead of the conversation; the pipe is made large enough to take them all at once."""
    encoded = base64.b64encode(client.read_bytes())
    try:
        launched.make_room(_ROOM)
        for start in range(0, len(encoded), _LINE):
            launched.send(encoded[start : start + _LINE] + b"\n")
        launched.send(b".\n")
    except LauncherGone as error:
        launched.close()
        raise ClientProgramError(Reason.CLIENT_DIED, f"the client could not be handed over: {error.detail}") from None


def _replaced(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word


def _check_variables(environment: Mapping[str, str]) -> None:
    if refused := refused_variables(list(environment)):
        raise ClientProgramError(
            Reason.NOT_SUPPORTED,
            f"the client's environment may not set {', '.join(refused)}",
            "take it out of sweep.client.environment",
        )


def _found(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise ClientProgramError(
            Reason.CLIENT_PROGRAM_MISSING, f"{program} is not there", "set sweep.client.program, or install it"
        )
    return path


def _environment() -> dict[str, str]:
    """For the runtime's own program, which finds its daemon and its storage by these."""
    kept = ("HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "CONTAINERS_STORAGE_CONF", "CONTAINERS_CONF")
    docker = ("DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY")
    return {"PATH": os.environ.get("PATH", PATH)} | {k: os.environ[k] for k in (*kept, *docker) if k in os.environ}
