"""What a scrape gets: rendered once for each view, format and compression, and then only handed out.

The few lines about this process are of no view: they are read when a scrape comes, at most once a second (listing 500
open descriptors takes 2 ms, which 200 scrapes a second would pay each).
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable

from mpswatch.latest import Latest, View
from mpswatch.metrics import ourselves
from mpswatch.metrics.builders import build
from mpswatch.metrics.sheet import Family, Options
from mpswatch.metrics.text import END, Format, render

GZIP = 31
GZIP_LEVEL = 6
PROCESS_SECONDS = 1.0


class Exposition:
    """Renders `latest` for scrapes. For one event loop: not to be shared between threads.

    `on_fault(error)` is told of faults of our own while building (they are also counted in
    mpswatch_metrics_errors_total); `about_process` gives the metrics that are of no view.
    """

    def __init__(
        self,
        latest: Latest,
        options: Options = Options(),  # noqa: B008  # frozen
        *,
        about_process: ourselves.Collect = ourselves.collect,
        monotonic: Callable[[], float] = time.monotonic,
        on_fault: Callable[[Exception], None] = lambda fault: None,  # noqa: ARG005  # a quiet default
    ) -> None:
        self._latest = latest
        self._options = options
        self._about_process = about_process
        self._monotonic = monotonic
        self._on_fault = on_fault
        self._faults = 0
        self._view: View | None = None
        self._families: tuple[Family, ...] = ()
        self._bodies: dict[Format, bytes] = {}
        self._compressors: dict[Format, tuple[bytes, zlib._Compress]] = {}
        self._tails: dict[Format, tuple[float, bytes]] = {}

    def render(self, format_: Format, *, compressed: bool = False) -> bytes:
        """Give the whole exposition as one body, gzipped where `compressed`."""
        body = self._body(format_)
        tail = self._tail(format_)
        if not compressed:
            return body + tail
        if format_ not in self._compressors:
            # The body is compressed once; each scrape's own lines are added to a copy of the compressor's state.
            compressor = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP)
            head = compressor.compress(body) + compressor.flush(zlib.Z_SYNC_FLUSH)
            self._compressors[format_] = (head, compressor)
        head, compressor = self._compressors[format_]
        copy = compressor.copy()
        return head + copy.compress(tail) + copy.flush(zlib.Z_FINISH)

    def _body(self, format_: Format) -> bytes:
        view = self._latest.view()
        if view is not self._view:
            self._view = view
            self._families, faults = build(view, self._options, earlier_faults=self._faults)
            self._faults += len(faults)
            self._bodies = {}
            self._compressors = {}
            for fault in faults:
                self._on_fault(fault)
        if format_ not in self._bodies:
            self._bodies[format_] = render(self._families, format_)
        return self._bodies[format_]

    def _tail(self, format_: Format) -> bytes:
        now = self._monotonic()
        until, lines = self._tails.get(format_, (now, b""))
        if until <= now:
            try:
                lines = ourselves.render(self._about_process(), format_)
            except (OSError, ValueError) as fault:  # /proc is not there: nothing is said about this process
                self._on_fault(fault)
                lines = b""
            self._tails[format_] = (now + PROCESS_SECONDS, lines)
        return lines + END[format_]
