"""control.log and server.log in the recorded form."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path


class Log:
    """One log file, appended to line by line: `[2026-11-30 16:22:33.959 Control   448] NEW UI`.

    Opened anew for each entry, so that a test may rotate, remove or fill it.
    """

    def __init__(self, path: Path, who: str) -> None:
        self._path = path
        self._who = who

    def write(self, text: str) -> None:
        """One entry for each line of `text`, in local time as the real one does."""
        now = datetime.now().astimezone()
        stamp = f"{now:%Y-%m-%d %H:%M:%S}.{now.microsecond // 1000:03d}"
        lines = "".join(f"[{stamp} {self._who} {os.getpid():5d}] {line}\n" for line in text.split("\n"))
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError:
            return  # a server of another uid may not write here; a real one goes on as well
        try:
            os.write(descriptor, lines.encode(errors="surrogateescape"))
        finally:
            os.close(descriptor)
