"""What a reload may change, and what stays as it is until the next start. Pure."""

from __future__ import annotations

import msgspec

from mpswatch.config import Config


def keep_what_needs_a_restart(running: Config, wanted: Config) -> tuple[Config, tuple[str, ...]]:
    """`wanted`, with what cannot change under a running daemon as `running` has it; and the names of those keys.

    The address is bound, the archive is open, and the host's name stands in every document.
    """
    left = []
    if wanted.web.listen_address != running.web.listen_address:
        left.append("web.listen_address")
    if wanted.archive != running.archive:
        left.append("archive")
    if wanted.host != running.host:
        left.append("host")
    if wanted.metrics != running.metrics:
        left.append("metrics")
    web = msgspec.structs.replace(wanted.web, listen_address=running.web.listen_address)
    kept = msgspec.structs.replace(wanted, web=web, archive=running.archive, host=running.host, metrics=running.metrics)
    return kept, tuple(left)
