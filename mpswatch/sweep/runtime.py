"""How the measuring client's launcher comes to life: which program, as whom, and with which environment."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from mpswatch.documents import Reason
from mpswatch.errors import MpswatchError
from mpswatch.names import shown
from mpswatch.proc import ProcessFacts
from mpswatch.process.launch import Launched, launch

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_SET_BY_US = (
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_MODULE_LOADING",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
# They change what is measured, or break into the client (LD_PRELOAD).
_NEVER = (
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "CUDA_MPS_CLIENT_PRIORITY",
    "CUDA_LAUNCH_BLOCKING",
    "LD_PRELOAD",
    "LD_AUDIT",
)
_NEVER_BEGINNING = ("CUBLAS_", "PYTORCH_", "NOTIFY_")


class ClientProgramError(MpswatchError):
    """The client cannot be started as configured."""


def refused_variables(names: Sequence[str]) -> tuple[str, ...]:
    """Those of `names` that configuration may not hand to the client."""
    return tuple(
        sorted(name for name in names if name in _SET_BY_US or name in _NEVER or name.startswith(_NEVER_BEGINNING))
    )


class Runtime(Protocol):
    """A way to run the launcher."""

    @property
    def name(self) -> str: ...

    def describe(self) -> str:
        """What the document says under `client_runtime`, such as `process /usr/bin/python3 as uid 0`."""
        ...

    def start(self, *, pipe_directory: Path, gpu_uuid: str, log_fd: int) -> Launched:
        """Start it; `MpswatchError` where it cannot be."""
        ...

    def is_ours(self, launched: Launched, facts: ProcessFacts) -> bool:
        """Whether that process belongs to this launcher."""
        ...

    def launcher_pid(self, launched: Launched) -> int | None:
        """The launcher's pid as this host numbers it; None while that is not known."""
        ...


@dataclass(frozen=True, kw_only=True)
class ProcessRuntime:
    """A process of this host, as our own user, in a session of its own.

    `client` is the zipapp (or package directory) that `python` runs; `environment` are the configured additions,
    LD_LIBRARY_PATH for instance; `uid` is whom it runs as, None for our own user.
    """

    python: str
    client: Path
    backend: Literal["torch", "numpy"] = "torch"
    environment: Mapping[str, str] = field(default_factory=dict)
    uid: int | None = None
    name: str = "process"

    def __post_init__(self) -> None:
        refused = refused_variables(list(self.environment))
        if refused:
            raise ClientProgramError(
                Reason.NOT_SUPPORTED,
                f"the client's environment may not set {', '.join(refused)}",
                "take it out of sweep.client.environment",
            )

    def describe(self) -> str:
        return f"process {shown(self.python)} as uid {os.geteuid() if self.uid is None else self.uid}"

    def start(self, *, pipe_directory: Path, gpu_uuid: str, log_fd: int) -> Launched:
        python = shutil.which(self.python)
        if python is None:
            raise ClientProgramError(
                Reason.CLIENT_PROGRAM_MISSING,
                f"the measuring client's interpreter {self.python} is not there, or may not be executed",
                "set sweep.client.python to a Python that has torch",
            )
        argv = [
            *self._as_user(),
            python,
            str(self.client),
            "--backend",
            self.backend,
            "--pipe-directory",
            str(pipe_directory),
        ]
        return launch(argv, env=self._built(pipe_directory, gpu_uuid), log_fd=log_fd)

    def is_ours(self, launched: Launched, facts: ProcessFacts) -> bool:
        return facts.session == launched.pid

    def launcher_pid(self, launched: Launched) -> int | None:
        return launched.pid

    def _as_user(self) -> list[str]:
        """What makes it another user's, where configuration says whose (setpriv execs: the pid stays)."""
        if self.uid is None or self.uid == os.geteuid():
            return []
        return ["setpriv", "--reuid", str(self.uid), "--regid", str(self.uid), "--clear-groups", "--"]

    def _built(self, pipe_directory: Path, gpu_uuid: str) -> dict[str, str]:
        """Built, not inherited: a variable of the daemon's must not change what is measured.

        One thread in the launcher when it forks; modules are loaded when used, which keeps a context cheap.
        """
        return {
            "PATH": PATH,
            "HOME": os.environ.get("HOME", "/"),  # where `pip install --user` put torch
            **client_environment(pipe_directory, gpu_uuid, self.environment),
        }


def client_environment(pipe_directory: Path, gpu_uuid: str, more: Mapping[str, str]) -> dict[str, str]:
    """What the client gets wherever it runs: `more` as configured, and what measuring needs."""
    return {
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        **more,
        "CUDA_MPS_PIPE_DIRECTORY": str(pipe_directory),
        "CUDA_VISIBLE_DEVICES": gpu_uuid,
        "CUDA_MODULE_LOADING": "LAZY",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "NUMEXPR_NUM_THREADS": "1",
    }
