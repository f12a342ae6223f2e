"""Where the launcher's standard error goes: bounded by the kernel, and gone with the last process that holds it."""

from __future__ import annotations

import fcntl
import os
from types import TracebackType
from typing import Self

from mpswatch.names import clip, home, printable

_LIMIT = 1 << 18


class LauncherLog:
    """The last words of the launcher and its children.

    A pipe would need a reader for as long as a client lives, and we may be stopped or gone; a file could fill a
    disk. This is a sealed piece of memory: what goes beyond its end is refused to the writer. All writers share one
    position, which `rewind` sets back between cells.
    """

    def __init__(self) -> None:
        self.fd = os.memfd_create("mpswatch-client-log", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.truncate(self.fd, _LIMIT)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)

    def rewind(self) -> None:
        """Begin anew when more than half is full."""
        if os.lseek(self.fd, 0, os.SEEK_CUR) > _LIMIT // 2:
            os.lseek(self.fd, 0, os.SEEK_SET)

    def last(self, lines: int = 3, width: int = 300) -> str:
        """The last non-empty lines, printable, homes as `~`, joined by ` | `; empty when nothing was written."""
        end = min(os.lseek(self.fd, 0, os.SEEK_CUR), _LIMIT)
        start = max(0, end - 4096)
        text = os.pread(self.fd, end - start, start).decode("utf-8", "replace")
        said = [line.strip() for line in text.splitlines() if line.strip()]
        return " | ".join(clip(home(printable(line)), width) for line in said[-lines:])

    def close(self) -> None:
        os.close(self.fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
