"""The web server's place in the daemon: sockets bound first, then an application over the latest view."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mpswatch.config import Config
from mpswatch.latest import Latest
from mpswatch.metrics import Exposition, Options
from mpswatch.web import FoundInterference, FoundRun, Protection, WebFile, WebServer, application, bind


class Serving:
    """One server over sockets that were bound before anything else was started."""

    def __init__(
        self,
        config: Config,
        sockets: Sequence[socket.socket],
        *,
        latest: Latest,
        find_run: Callable[[str], FoundRun | None],
        find_interference: Callable[[str], FoundInterference | None],
        healthy: Callable[[], bool],
        verdict: Callable[[], str],
        log: Any,  # noqa: ANN401 - structlog's loggers are proxies
    ) -> None:
        web_file = web_file_of(config)
        protection = Protection(web_file)
        app = application(
            latest=latest,
            exposition=Exposition(
                latest,
                Options(
                    tenant_names=config.metrics.tenant_names,
                    tenant_groups=config.metrics.tenant_groups,
                    pid_labels=config.metrics.pid_labels,
                ),
            ),
            find_run=find_run,
            find_interference=find_interference,
            healthy=healthy,
            verdict=verdict,
            protection=protection,
        )
        self._server = WebServer(app, list(sockets), web_file=web_file, protection=protection, log=log)
        self.addresses = [_address(listener) for listener in sockets]
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._server.serve())

    @property
    def alive(self) -> bool:
        """Whether the server runs; it has no reason to end before it is stopped."""
        return self._task is not None and not self._task.done()

    async def stop(self, deadline: float) -> None:
        """Let what is being answered be answered, for `deadline` seconds at most."""
        if self._task is None:
            return
        self._server.stop()
        await asyncio.wait({self._task}, timeout=deadline)


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def web_file_of(config: Config) -> WebFile | None:
    """The web configuration file, read; `WebFileError` names what it cannot honour."""
    return WebFile.load(Path(config.web.config_file)) if config.web.config_file is not None else None


def url_of(config: Config, sockets: Sequence[socket.socket], *, tls: bool) -> str:
    """Where a browser on this host finds the page: `http://127.0.0.1:10677/`."""
    host, _ = config.web.listen_address
    host = f"[{host}]" if ":" in host else host or "localhost"
    return f"{'https' if tls else 'http'}://{host}:{sockets[0].getsockname()[1]}/"


def bind_address(config: Config) -> list[socket.socket]:
    """Listen on the configured address; `AddressError` for one that is taken, with the remedy."""
    host, port = config.web.listen_address
    return list(bind(host, port))
