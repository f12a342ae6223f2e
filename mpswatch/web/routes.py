"""The application: pages, metrics, documents and health over the latest view, behind the gate."""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from mpswatch.latest import Latest
from mpswatch.metrics import CONTENT_TYPES, Exposition
from mpswatch.web.api import as_json
from mpswatch.web.gate import Gate, Limits
from mpswatch.web.negotiate import format_of, takes_gzip
from mpswatch.web.page_interference import FoundInterference
from mpswatch.web.page_routes import page_routes
from mpswatch.web.page_run import FoundRun
from mpswatch.web.protection import Protection


def application(
    *,
    latest: Latest,
    exposition: Exposition,
    healthy: Callable[[], bool],
    verdict: Callable[[], str],
    protection: Protection,
    limits: Limits = Limits(),  # noqa: B008  # frozen
    find_run: Callable[[str], FoundRun | None] = lambda run_id: None,  # noqa: ARG005  # without an archive
    find_interference: Callable[[str], FoundInterference | None] = lambda run_id: None,  # noqa: ARG005  # as find_run
    more: tuple[Route, ...] = (),
) -> ASGIApp:
    """Make the application. `healthy` and `verdict` are asked at each request and must not block.

    `find_run` and `find_interference` read a run and an interference measurement by their ids, in a thread of the web's
    own: they may block, and raise `MpswatchError`.
    `more` are routes of other rooms (pages of runs); they pass the same gate.
    """

    async def metrics(request: Request) -> Response:
        format_ = format_of(request.headers.get("accept", ""))
        compressed = takes_gzip(request.headers.get("accept-encoding", ""))
        headers = {"Content-Type": CONTENT_TYPES[format_], "Vary": "Accept, Accept-Encoding"}
        if compressed:
            headers["Content-Encoding"] = "gzip"
        return Response(exposition.render(format_, compressed=compressed), headers=headers)

    async def api(request: Request) -> Response:  # noqa: ARG001  # every route is called alike
        body = as_json(latest.view(), private=protection.settings.private)
        return Response(body, media_type="application/json")

    async def is_healthy(request: Request) -> Response:  # noqa: ARG001  # every route is called alike
        if healthy():
            return PlainTextResponse("mpswatch is healthy\n")
        return PlainTextResponse("mpswatch is not healthy: its loop or its polls do not turn\n", 503)

    async def is_ready(request: Request) -> Response:  # noqa: ARG001  # every route is called alike
        if latest.view().first_poll_finished:
            return PlainTextResponse("mpswatch is ready\n")
        return PlainTextResponse("mpswatch is not ready: the first poll has not finished\n", 503)

    routes = (
        *page_routes(
            latest=latest,
            verdict=verdict,
            protection=protection,
            find_run=find_run,
            find_interference=find_interference,
        ),
        Route("/metrics", metrics),
        Route("/api/v1/latest", api),
        Route("/-/healthy", is_healthy),
        Route("/-/ready", is_ready),
        *more,
    )
    pages = Starlette(routes=routes)
    pages.router.redirect_slashes = False  # a redirect would be built from the Host header, which is the client's
    return Gate(pages, protection=protection, limits=limits)
