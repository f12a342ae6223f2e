"""uvicorn inside the daemon's loop: sockets and signals are ours, and certificates are reloaded without a restart."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import socket
import ssl
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from mpswatch.documents import Reason
from mpswatch.errors import MpswatchError
from mpswatch.web.gate import Limits
from mpswatch.web.protection import Protection
from mpswatch.web.protocol import Door, GuardedProtocol
from mpswatch.web.settings import Stamp, WebFileError
from mpswatch.web.tls import allowed
from mpswatch.web.webfile import WebFile, changed
from mpswatch.web.worker import Worker

BACKLOG = 256
TURN_SECONDS = 1.0
RELOAD_SECONDS = 2.0


class AddressError(MpswatchError):
    """Nobody can be listened to at that address."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        remedies = {
            errno.EADDRINUSE: f"end what listens there (ss -ltnp 'sport = :{port}'), or set --web.listen-address",
            errno.EADDRNOTAVAIL: "set --web.listen-address to an address of this host",
            errno.EACCES: "choose a port above 1023 with --web.listen-address",
        }
        super().__init__(
            Reason.ADDRESS_UNAVAILABLE,
            f"cannot listen on {host or '*'}:{port}: {error.strerror or error}",
            remedies.get(error.errno or 0, "set --web.listen-address to an address of this host"),
        )


def bind(host: str, port: int) -> tuple[socket.socket, ...]:
    """Listen on every address that `host` stands for (empty: all interfaces, IPv6 too); raises `AddressError`."""
    sockets: list[socket.socket] = []
    try:
        for family, address in _addresses(host, port):
            listener = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != ""))
            listener.settimeout(0)
            listener.bind(address)
            listener.listen(BACKLOG)
    except OSError as error:
        for listener in sockets:
            listener.close()
        raise AddressError(host, port, error) from error
    return tuple(sockets)


def _addresses(host: str, port: int) -> list[tuple[int, Any]]:
    if host:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return list(dict.fromkeys((int(family), address) for family, _, _, _, address in found))
    if socket.has_dualstack_ipv6():
        return [(socket.AF_INET6, ("::", port))]
    return [(socket.AF_INET, ("0.0.0.0", port))]  # noqa: S104  # asked for by an empty host


class WebServer(uvicorn.Server):
    """Serves `app` on bound `sockets`, inside the running loop, until `stop`.

    With a `web_file`, it and its certificates are looked at every two seconds and taken when they changed; a change
    that is faulty is logged (`log.error`) once and the settings in force stay.
    """

    def __init__(
        self,
        app: ASGIApp,
        sockets: Sequence[socket.socket],
        *,
        protection: Protection,
        web_file: WebFile | None = None,
        limits: Limits = Limits(),  # noqa: B008  # frozen
        log: Any,  # noqa: ANN401  # structlog's loggers are proxies
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=int(limits.keep_alive_seconds),
                timeout_graceful_shutdown=max(1, int(limits.graceful_seconds)),
                h11_max_incomplete_event_size=limits.header_bytes,
            )
        )
        # What a stranger sends is no news of ours: only faults of the application are logged.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._sockets = list(sockets)
        self._protection = protection
        self._web_file = web_file
        self._seen: Mapping[Path, Stamp] = web_file.seen if web_file is not None else {}
        self._log = log
        self._door = Door(_within_descriptors(limits), admits=self._admits)
        self._worker = Worker("mpswatch-web-file")
        self._stopping = asyncio.Event()
        self._accepting = False

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until `stop`; then let replies in work end, within the graceful time-out, and close the sockets."""
        watching = asyncio.create_task(self._watch_file()) if self._web_file is not None else None
        try:
            await super().serve(sockets or self._sockets)
        finally:
            if watching is not None:
                watching.cancel()
            for protocol in list(self._door.open):
                protocol.abort()

    def stop(self) -> None:
        self.should_exit = True
        self._stopping.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals alone: they are the daemon's."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002  # ours are bound
        """Begin to accept (uvicorn's own would bind anew and make its own protocols)."""
        self.servers: list[asyncio.Server] = []
        await self._accept()
        self.started = True

    async def main_loop(self) -> None:
        """Turn once a second (uvicorn does ten times) for the Date header, and to accept again after a crowd."""
        while not await self.on_tick(0):
            if not self._accepting and not self._door.full:
                await self._accept()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), TURN_SECONDS)

    async def _accept(self) -> None:
        """Accept with the TLS context in force. The sockets stay: only duplicates are handed to asyncio and closed."""
        loop = asyncio.get_running_loop()
        context = self._web_file.context if self._web_file is not None else None
        before, self.servers = self.servers, []
        for listener in self._sockets:
            server = await loop.create_server(
                self._protocol,
                sock=listener.dup(),
                ssl=context,
                ssl_handshake_timeout=self._door.limits.handshake_seconds if context is not None else None,
                backlog=BACKLOG,
            )
            self.servers.append(server)
        self._accepting = True
        for server in before:
            server.close()

    def _protocol(self) -> GuardedProtocol:
        protocol = GuardedProtocol(self.config, self.server_state, self._door)
        if self._door.full:
            # Not at once: asyncio is still attaching this connection to its server, and others that came with it.
            asyncio.get_running_loop().call_soon(self._make_room)
        return protocol

    def _make_room(self) -> None:
        if self._door.full and not self._door.make_room():
            # All are at work or in a handshake: those to come wait in the kernel until some have left.
            self._accepting = False
            for server in self.servers:
                server.close()

    def _admits(self, transport: asyncio.BaseTransport) -> bool:
        tls = self._protection.settings.tls
        if tls is None or not tls.client_allowed_sans:
            return True
        session = transport.get_extra_info("ssl_object")
        return isinstance(session, ssl.SSLObject) and allowed(session.getpeercert(), tls.client_allowed_sans)

    async def _watch_file(self) -> None:
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            current = self._web_file
            if current is None:
                return
            if not await self._worker.run(lambda seen=self._seen: changed(seen)):  # type: ignore[misc]
                continue
            try:
                fresh = await self._worker.run(lambda path=current.path: WebFile.load(path))  # type: ignore[misc]
            except WebFileError as error:
                self._seen = error.seen  # what it names besides: the fault may be mended there
                self._log.error("the web configuration was not reloaded", detail=error.detail, remedy=error.remedy)
                continue
            self._web_file, self._seen = fresh, fresh.seen
            self._protection.replace(fresh)
            await self._accept()
            self._log.info("the web configuration was reloaded", path=str(fresh.path))


def _within_descriptors(limits: Limits) -> Limits:
    """Leave half of the process's descriptors to everything that is not a connection."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return limits
    return replace(limits, connections=min(limits.connections, max(16, soft // 2)))
