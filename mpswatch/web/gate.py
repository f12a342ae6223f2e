"""What every request passes first: method, sizes, how much is in work, and who asks."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mpswatch.web.protection import Answer, Protection

_ABSOLUTE = re.compile(rb"https?://[^/]+", re.IGNORECASE)

HEALTH_PATHS = frozenset({"/-/healthy", "/-/ready"})

SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one may ask: seconds, bytes and counts. A connection costs little; a request in work costs more."""

    header_seconds: float = 10.0
    handshake_seconds: float = 10.0
    keep_alive_seconds: float = 75.0
    drain_seconds: float = 30.0
    header_bytes: int = 16 << 10
    path_bytes: int = 2048
    requests_in_work: int = 64
    connections: int = 1000
    graceful_seconds: float = 3.0


class Gate:
    """Wraps the application. Health paths need no password and are answered however much is in work."""

    def __init__(self, app: ASGIApp, *, protection: Protection, limits: Limits) -> None:
        self._app = app
        self._protection = protection
        self._limits = limits
        self._in_work = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        scope = _in_origin_form(scope)
        send = self._with_headers(send)
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        if scope["path"] in HEALTH_PATHS:
            await self._app(scope, receive, send)
            return
        if self._in_work >= self._limits.requests_in_work:
            await _busy()(scope, receive, send)
            return
        self._in_work += 1
        try:
            await self._admitted(scope, receive, send)
        finally:
            self._in_work -= 1

    async def _admitted(self, scope: Scope, receive: Receive, send: Send) -> None:
        match await self._protection.check(_header(scope, b"authorization")):
            case Answer.ADMITTED:
                await self._app(scope, receive, send)
            case Answer.BUSY:
                await _busy()(scope, receive, send)
            case Answer.REFUSED:
                headers = {"WWW-Authenticate": 'Basic realm="mpswatch", charset="UTF-8"'}
                await PlainTextResponse("password required\n", 401, headers)(scope, receive, send)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        closing = {"Connection": "close"}
        if scope["http_version"] not in ("1.0", "1.1"):
            return PlainTextResponse("HTTP/1.0 and HTTP/1.1 only\n", 505, closing)
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("GET and HEAD only\n", 405, {"Allow": "GET, HEAD", **closing})
        if len(scope["raw_path"]) + len(scope["query_string"]) > self._limits.path_bytes:
            return PlainTextResponse("path too long\n", 414, closing)
        if sum(len(name) + len(value) for name, value in scope["headers"]) > self._limits.header_bytes:
            return PlainTextResponse("headers too large\n", 431, closing)
        if (_header(scope, b"content-length") or "").strip("0") or _header(scope, b"transfer-encoding") is not None:
            return PlainTextResponse("a request here has no body\n", 413, closing)
        return None

    def _with_headers(self, send: Send) -> Send:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add_headers(message, {**SECURITY_HEADERS, **self._protection.settings.headers})
            await send(message)

        return send_with_headers


def _in_origin_form(scope: Scope) -> Scope:
    """Leave scheme and authority out of an absolute request target, which a server has to take (RFC 9112, 3.2.2)."""
    found = _ABSOLUTE.match(scope["raw_path"])
    if found is None:
        return scope
    raw_path = scope["raw_path"][found.end() :] or b"/"
    return {**scope, "raw_path": raw_path, "path": unquote(raw_path.decode("ascii"))}


def _busy() -> PlainTextResponse:
    return PlainTextResponse("too much in work\n", 503, {"Retry-After": "1"})


def _header(scope: Scope, name: bytes) -> str | None:
    for key, value in scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return None


def _add_headers(message: MutableMapping[str, Any], headers: dict[str, str]) -> None:
    """Add what the response does not set itself (a page has a policy of its own for its style)."""
    present = {name.lower() for name, _ in message["headers"]}
    message["headers"] = [
        *message["headers"],
        *(
            (name.lower().encode(), value.encode())
            for name, value in headers.items()
            if name.lower().encode() not in present
        ),
    ]
