"""The routes of the pages: status, the script that keeps it up to date, the runbooks, and a page for each run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from mpswatch.errors import MpswatchError
from mpswatch.latest import Latest
from mpswatch.web.page import POLICY, SCRIPT
from mpswatch.web.page_interference import FoundInterference, interference_page
from mpswatch.web.page_run import FoundRun, missing_page, run_page
from mpswatch.web.page_runbooks import runbooks_page
from mpswatch.web.page_status import page
from mpswatch.web.protection import Protection
from mpswatch.web.worker import Worker

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
HEADERS = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}


def page_routes(
    *,
    latest: Latest,
    verdict: Callable[[], str],
    protection: Protection,
    find_run: Callable[[str], FoundRun | None],
    find_interference: Callable[[str], FoundInterference | None],
) -> tuple[Route, ...]:
    """Make the routes. What finds runs and measurements may block: it is called in a thread, one call after another."""
    reader = Worker("mpswatch-runs")

    async def root(request: Request) -> Response:
        text = page(latest.view(), verdict(), private=protection.settings.private)
        etag = f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'
        headers = {**HEADERS, "ETag": etag}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return HTMLResponse(text, headers=headers)

    async def script(request: Request) -> Response:  # noqa: ARG001  # every route is called alike
        return Response(SCRIPT, media_type="text/javascript", headers={"Cache-Control": "no-cache"})

    async def runbooks(request: Request) -> Response:  # noqa: ARG001  # every route is called alike
        view = latest.view()
        text = runbooks_page(view.host, version=view.mpswatch_version, simulated=view.simulated)
        return HTMLResponse(text, headers=HEADERS)

    async def found(request: Request, what: str, find: Callable[[str], object], write: Callable[..., str]) -> Response:
        run_id, view = request.path_params["run_id"], latest.view()
        known = RUN_ID.fullmatch(run_id) is not None
        try:
            one = await reader.run(lambda: find(run_id)) if known else None
        except MpswatchError as error:
            return PlainTextResponse(f"the archive cannot be read: {error.reason}\n", 503)
        if one is None:
            said = f"{what} {run_id if known else 'of that name'}"
            text = missing_page(said, view.host, version=view.mpswatch_version, simulated=view.simulated)
            return HTMLResponse(text, 404, headers=HEADERS)
        text = write(one, version=view.mpswatch_version, private=protection.settings.private)
        return HTMLResponse(text, headers=HEADERS)

    async def run(request: Request) -> Response:
        return await found(request, "run", find_run, run_page)

    async def interference(request: Request) -> Response:
        return await found(request, "interference", find_interference, interference_page)

    return (
        Route("/", root),
        Route("/runs/{run_id}", run),
        Route("/interference/{run_id}", interference),
        Route("/runbooks", runbooks),
        Route("/static/live.js", script),
    )
