"""Log lines, as JSON or for a terminal, written by a thread of their own.

A reader of stderr that stalls (a paused terminal, a full pipe) must not stop the event loop: lines wait in a
bounded queue, and what does not fit is counted and said once there is room. Values cannot break out of their
line or move a terminal's cursor: text is made printable here, whatever its origin.
"""

from __future__ import annotations

import collections
import json
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

from mpswatch.names import printable

Format = Literal["auto", "json", "text"]

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_QUEUED_LINES = 1000


class LineWriter:
    """Writes lines to a descriptor from a daemon thread; `write` never blocks."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines: collections.deque[bytes] = collections.deque()
        self._changed = threading.Condition()
        self._dropped = 0
        self._busy = False
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def write(self, line: str) -> None:
        with self._changed:
            if len(self._lines) >= _QUEUED_LINES:
                self._dropped += 1
                return
            self._lines.append(line.encode("utf-8", "backslashreplace") + b"\n")
            self._changed.notify_all()

    def flush(self, deadline: float) -> bool:
        """Wait up to `deadline` seconds until all is written; True when it is."""
        end = time.monotonic() + deadline
        with self._changed:
            return self._changed.wait_for(lambda: not self._lines and not self._busy, max(0.0, end - time.monotonic()))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: bool(self._lines))
                data = b"".join(self._lines)
                self._lines.clear()
                if self._dropped:
                    data += f"{self._dropped} log lines were dropped: stderr did not take them\n".encode()
                    self._dropped = 0
                self._busy = True
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(self._descriptor, view) :]
            except OSError:
                continue  # stderr is gone: there is nobody left to tell


_writers: dict[int, LineWriter] = {}


def _writer(descriptor: int = 2) -> LineWriter:
    if descriptor not in _writers:
        _writers[descriptor] = LineWriter(descriptor)
    return _writers[descriptor]


class Logger:
    """Takes an event, always worded the same, and its fields; writes a line as `set_up` said.

    The field `exc_info`, an exception, becomes a traceback.
    """

    level = _LEVELS["info"]
    form: Literal["json", "text"] = "text"

    def debug(self, event: str, /, **fields: object) -> None:
        self._say("debug", event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        self._say("info", event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        self._say("warning", event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        self._say("error", event, fields)

    def _say(self, level: str, event: str, fields: dict[str, object]) -> None:
        if _LEVELS[level] < self.level:
            return
        error = fields.pop("exc_info", None)
        if isinstance(error, BaseException):
            fields["exception"] = "".join(traceback.format_exception(error)).rstrip("\n")
        stamp = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        head = {"timestamp": stamp, "level": level, "event": event}
        _writer().write(_as_json(head, fields) if self.form == "json" else _as_text(head, fields))


_logger = Logger()


def _as_text(head: Mapping[str, str], fields: dict[str, object]) -> str:
    trace = str(fields.pop("exception", ""))
    pairs = "".join(f"  {key}={_shown(value)}" for key, value in fields.items() if value is not None)
    line = f"{head['timestamp']} {head['level']:<7} {printable(head['event'])}{pairs}"
    return line + "".join(f"\n    {printable(part)}" for part in trace.splitlines())


def _shown(value: object) -> str:
    text = printable(str(value))
    return f'"{text}"' if " " in text or not text else text


def _as_json(head: Mapping[str, str], fields: Mapping[str, object]) -> str:
    return json.dumps({**fields, **head}, default=str)  # escapes every control character and all that is not ASCII


class _FromLogging(logging.Handler):
    """Lines of libraries (the web server, asyncio) in the same form as ours."""

    def emit(self, record: logging.LogRecord) -> None:
        say = _logger.error if record.levelno >= logging.ERROR else _logger.warning
        say(record.getMessage(), library=record.name, exc_info=record.exc_info[1] if record.exc_info else None)


def set_up(level: str, form: Format) -> None:
    """From here on every log line goes to stderr as `form`, from `level` up."""
    _logger.form = form if form != "auto" else "text" if sys.stderr.isatty() else "json"
    _logger.level = _LEVELS[level]
    root = logging.getLogger()
    root.handlers = [_FromLogging(level=logging.WARNING)]
    root.setLevel(logging.WARNING)


def get_logger() -> Logger:
    """The logger of this process, which follows `set_up`."""
    return _logger


def flush(deadline: float = 1.0) -> None:
    """Give the lines that wait up to `deadline` seconds to get out (before `os._exit`)."""
    for writer in _writers.values():
        writer.flush(deadline)
