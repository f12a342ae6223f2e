"""Reload: what it may change, what stays as it is until the next start, and what is said about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from mpswatch.config import Config
from mpswatch.daemon.facts import Facts
from mpswatch.daemon.systemd import Notifier
from mpswatch.daemon.worker import Worker
from mpswatch.errors import MpswatchError

_FIXED = ("host", "archive", "web", "metrics")


def keep_what_needs_a_restart(running: Config, wanted: Config) -> tuple[Config, tuple[str, ...]]:
    """`wanted`, with what cannot change under a running daemon as `running` has it; and the names of those sections.

    The address is bound, the archive is open, and the host's name stands in every document. The web file (TLS and
    passwords) is another matter: the web server takes its changes by itself.
    """
    left = tuple(name for name in _FIXED if getattr(wanted, name) != getattr(running, name))
    return msgspec.structs.replace(wanted, **{name: getattr(running, name) for name in left}), left


class Reloading:
    """Reads the configuration anew, in a thread (its file system may hang), and hands it to `take` if it is good."""

    def __init__(
        self,
        *,
        reread: Callable[[], Config],
        running: Callable[[], Config],
        take: Callable[[Config], None],
        worker: Worker[Config],
        facts: Facts,
        notifier: Notifier,
        log: Any,  # noqa: ANN401 - structlog's loggers are proxies
    ) -> None:
        self._reread = reread
        self._running = running
        self._take = take
        self._worker = worker
        self._facts = facts
        self._notifier = notifier
        self._log = log

    def trigger(self) -> None:
        self._notifier.reloading()
        if not self._worker.offer(self._reread, self._good, self._faulty):
            self._log.warning("a reload is under way")

    def _good(self, wanted: Config) -> None:
        config, left = keep_what_needs_a_restart(self._running(), wanted)
        self._take(config)
        self._log.info("configuration reloaded", needs_restart=", ".join(left) or None)
        self._facts.event("configuration_reloaded", "configuration reloaded", needs_restart=list(left))
        self._notifier.ready("configuration reloaded")

    def _faulty(self, error: Exception) -> None:
        if isinstance(error, MpswatchError):
            self._log.error("the new configuration is not taken, the old one stays", detail=error.detail)
            self._facts.event("configuration_rejected", error.detail[:2000], reason=error.reason)
        else:
            self._log.error("the configuration could not be read anew, the old one stays", exc_info=error)
        self._notifier.ready("the new configuration was not taken")
