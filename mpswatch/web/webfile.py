"""The web configuration file as it is in force, and whether it or a certificate changed since."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mpswatch.web.reading import read_settings, stamp_of
from mpswatch.web.settings import Stamp, WebFileError, WebSettings
from mpswatch.web.tls import context_of


@dataclass(frozen=True, slots=True)
class WebFile:
    """Read once and whole: settings, the TLS context made of them (None: plain HTTP), and the files that were read."""

    path: Path
    settings: WebSettings
    context: ssl.SSLContext | None
    seen: Mapping[Path, Stamp]

    @classmethod
    def load(cls, path: Path) -> WebFile:
        """Read `path` and the certificates it names; raises `WebFileError` with every fault."""
        seen: dict[Path, Stamp] = {}
        settings = read_settings(path, seen)
        try:
            context = context_of(settings.tls, path) if settings.tls is not None else None
        except WebFileError as error:
            error.seen = seen
            raise
        return cls(path, settings, context, seen)


def changed(seen: Mapping[Path, Stamp]) -> bool:
    """Say whether any of the files is another than it was (it may block: use a thread)."""
    return any(stamp_of(path) != stamp for path, stamp in seen.items())
