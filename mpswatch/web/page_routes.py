"""The routes of the pages: the status page, the script that keeps it up to date, and a page for each run."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from mpswatch.errors import MpswatchError
from mpswatch.latest import Latest
from mpswatch.web.page import POLICY, SCRIPT, page
from mpswatch.web.page_run import FoundRun, missing_page, run_page
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
) -> tuple[Route, ...]:
    """Make the routes. `find_run` may block: it is called in a thread, one call after another."""
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

    async def run(request: Request) -> Response:
        run_id, view = request.path_params["run_id"], latest.view()
        try:
            found = await reader.run(lambda: find_run(run_id)) if RUN_ID.fullmatch(run_id) else None
        except MpswatchError as error:
            return PlainTextResponse(f"the archive cannot be read: {error.reason}\n", 503)
        if found is None:
            said = run_id if RUN_ID.fullmatch(run_id) else "of that name"
            text = missing_page(said, view.host, version=view.mpswatch_version, simulated=view.simulated)
            return HTMLResponse(text, 404, headers=HEADERS)
        private = protection.settings.private
        return HTMLResponse(run_page(found, version=view.mpswatch_version, private=private), headers=HEADERS)

    return (Route("/", root), Route("/runs/{run_id}", run), Route("/static/live.js", script))
