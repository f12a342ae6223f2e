"""What a reload may change, and what stays as it is until the next start. Pure."""

from __future__ import annotations

import msgspec

from mpswatch.config import Config

_FIXED = ("host", "archive", "web", "metrics")


def keep_what_needs_a_restart(running: Config, wanted: Config) -> tuple[Config, tuple[str, ...]]:
    """`wanted`, with what cannot change under a running daemon as `running` has it; and the names of those sections.

    The address is bound, the archive is open, and the host's name stands in every document. The web file (TLS and
    passwords) is another matter: the web server takes its changes by itself.
    """
    left = tuple(name for name in _FIXED if getattr(wanted, name) != getattr(running, name))
    return msgspec.structs.replace(wanted, **{name: getattr(running, name) for name in left}), left
