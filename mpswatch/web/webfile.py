"""The web configuration file as it is in force, and whether it or a certificate changed since."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from mpswatch.web.reading import read_settings
from mpswatch.web.settings import WebSettings
from mpswatch.web.tls import context_of

Stamp: TypeAlias = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class WebFile:
    """Read once and whole: settings, and the TLS context made of them (None: plain HTTP)."""

    path: Path
    settings: WebSettings
    context: ssl.SSLContext | None
    stamp: Stamp

    @classmethod
    def load(cls, path: Path) -> WebFile:
        """Read `path` and load its certificates; raises `WebFileError` with every fault."""
        before = _stamp(path)  # taken first: a change while reading is noticed at the next look
        settings = read_settings(path)
        files = settings.tls.files if settings.tls is not None else ()
        stamp = (*before, *_stamp(*files))
        context = context_of(settings.tls, path) if settings.tls is not None else None
        return cls(path, settings, context, stamp)

    def current_stamp(self) -> Stamp:
        """Look at the files again: another stamp than `stamp` means that one changed (it may block: use a thread)."""
        files = self.settings.tls.files if self.settings.tls is not None else ()
        return _stamp(self.path, *files)


def _stamp(*paths: Path) -> Stamp:
    stamps: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            found = path.stat()
        except OSError:
            stamps.append(None)
        else:
            stamps.append((found.st_mtime_ns, found.st_size, found.st_ino))
    return tuple(stamps)
