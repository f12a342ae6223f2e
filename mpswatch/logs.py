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
from collections.abc import Mapping, MutableMapping
from typing import Any, Literal

from mpswatch.names import printable

# structlog.dev imports rich wherever it is installed, for tracebacks in colour: 4.5 MiB of a daemon's 50 and a
# fifth of its start, for something that is not used here. It takes "not installed" for an answer.
_hide_rich = "rich" not in sys.modules
if _hide_rich:
    sys.modules["rich"] = None  # type: ignore[assignment] # None is what the import system reads as "not there"
try:
    import structlog
finally:
    if _hide_rich:
        del sys.modules["rich"]

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


class _Logger:
    """What structlog calls with the finished line."""

    def msg(self, message: str) -> None:
        _writer().write(message)

    debug = info = warning = error = critical = exception = log = msg


def _as_text(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    stamp, level, message = event.pop("timestamp"), event.pop("level"), event.pop("event")
    trace = event.pop("exception", None)
    pairs = "".join(f"  {key}={_shown(value)}" for key, value in event.items() if value is not None)
    line = f"{stamp} {level:<7} {printable(str(message))}{pairs}"
    return line + "".join(f"\n    {printable(part)}" for part in trace.splitlines()) if trace else line


def _shown(value: object) -> str:
    text = printable(str(value))
    return f'"{text}"' if " " in text or not text else text


def _as_json(_logger: object, _method: str, event: MutableMapping[str, Any]) -> str:
    return json.dumps(event, default=str)  # escapes every control character and all that is not ASCII


class _FromLogging(logging.Handler):
    """Lines of libraries (the scheduler, the web server) in the same form as ours."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger(library=record.name)
        level = "error" if record.levelno >= logging.ERROR else "warning"
        values: Mapping[str, Any] = {"exc_info": record.exc_info} if record.exc_info else {}
        getattr(log, level)(record.getMessage(), **values)


def set_up(level: str, form: Format) -> None:
    """From here on every log line goes to stderr as `form`, from `level` up."""
    if form == "auto":
        form = "text" if sys.stderr.isatty() else "json"
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _as_text if form == "text" else _as_json,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=lambda *_: _Logger(),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers = [_FromLogging(level=logging.WARNING)]
    root.setLevel(logging.WARNING)


def get_logger(**values: object) -> Any:  # noqa: ANN401 - structlog's own loggers are proxies
    """A logger whose lines carry `values`."""
    return structlog.get_logger(**values)


def flush(deadline: float = 1.0) -> None:
    """Give the lines that wait up to `deadline` seconds to get out (before `os._exit`)."""
    for writer in _writers.values():
        writer.flush(deadline)
