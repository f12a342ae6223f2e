"""What the client asks of the library it measures with. Chosen by `--backend`; imported by name, never both."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from .pieces import Device
from .sustained import Request


class Cell(NamedTuple):
    """One cell as the daemon asked for it, checked (see `requests.py`)."""

    order: int
    cap: str
    size: int
    iters: int
    dtype: str
    seed: int
    deadline: float
    warm_up: int
    samples: int
    fail_in: str | None
    kind: str = "matmul"  # what it computes: see KINDS
    passes: int = 1  # measured passes of `iters`, each after `rest` seconds without work
    rest: float = 0.0
    sustained: Request | None = None  # work under load, after the passes
    beside: int | None = None  # the order of the cell under way beside which this one may run


KINDS = ("matmul", "stream", "launch")
"""Kinds of work: a square matmul (compute), one pass over large memory (bandwidth), a tiny kernel (latency)."""


class Refused(Exception):  # noqa: N818 -- reads so where it is caught
    """The MPS server (or the rehearsal's) does not take this client. `reason` is a value of mpswatch's Reason."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Backend:
    """A library that multiplies matrices. All but `versions` happens in the child, after the fork."""

    clock = ""
    """What `seconds` is measured with: `cuda_event` or `perf_counter`."""

    def versions(self) -> dict[str, Any]:
        """Versions of what was imported, without starting CUDA: this is asked in the launcher."""
        raise NotImplementedError

    def attach(self, cell: Cell, pipe_directory_fd: int) -> dict[str, Any]:
        """Make the context: from here on this process is a client. Returns sm_count, device_uuid, device_name.

        May hang for as long as the driver likes; nothing is in flight meanwhile.
        """
        raise NotImplementedError

    def allocate(self, cell: Cell) -> Device:
        """Take all memory the cell needs, without running a kernel."""
        raise NotImplementedError

    def dtype(self, cell: Cell) -> str:
        """What it really computes with."""
        raise NotImplementedError

    def bytes_each(self, cell: Cell) -> int | None:
        """Bytes that one kernel of `stream` reads and writes; None for the other kinds."""
        raise NotImplementedError

    def input_values(self, cell: Cell) -> str:
        """What the matrices hold, for a reader of the document."""
        raise NotImplementedError

    def exhaust(self) -> None:
        """Ask for more memory than there can be (tests only): raises the library's own error."""
        raise NotImplementedError

    def reason_of(self, error: BaseException) -> str | None:
        """The value of mpswatch's Reason for an error of this library, None where it is not one."""
        raise NotImplementedError


def load(name: str) -> Backend:
    """Import the library; takes seconds for torch. Raises what the import raises."""
    module = importlib.import_module("." + {"torch": "torch_backend", "numpy": "numpy_backend"}[name], __package__)
    backend: Backend = module.BACKEND()
    return backend
