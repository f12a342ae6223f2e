"""The page at `/`: what a person wants first, from the same view that metrics are read from."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime

from mpswatch.documents import Cell
from mpswatch.latest import View
from mpswatch.web.html import Markup, document, style, tag, void

CSS = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%;margin:.5rem 0 1.5rem}
caption{text-align:left;font-weight:600}
th,td{text-align:left;padding:.25rem .75rem .25rem 0;border-bottom:1px solid #8886;vertical-align:top}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}
.simulated{border:3px solid #c60;padding:.5rem 1rem;font-weight:700}
.wrong{font-weight:700}
"""

POLICY = (
    "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(CSS.encode()).digest()).decode()}'"
)


def page(view: View, verdict: str, *, private: bool) -> str:
    """Write the page. Users and command lines are shown only where `private` (behind a password)."""
    title = f"mpswatch on {view.host}"
    return document(
        tag(
            "html",
            tag(
                "head",
                void("meta", charset="utf-8"),
                void("meta", name="viewport", content="width=device-width,initial-scale=1"),
                tag("title", ("[simulated] " if view.simulated else "") + title),
                style(CSS),
            ),
            tag(
                "body",
                tag("h1", title),
                _simulated(view),
                tag("p", f"mpswatch {view.mpswatch_version}. ", tag("strong", verdict)),
                _links(),
                _state(view),
                _curve(view),
                _runs(view),
                _refused(view),
                _tenants(view) if private else Markup(),
            ),
            lang="en",
        )
    )


def _simulated(view: View) -> Markup:
    if not view.simulated:
        return Markup()
    text = "Simulated: everything here comes from the rehearsal stack. No GPU was measured."
    return tag("p", text, class_="simulated", role="alert")


def _links() -> Markup:
    links = (("/metrics", "metrics"), ("/api/v1/latest", "latest documents (JSON)"), ("/-/healthy", "healthy"))
    anchors = [tag("a", text, href=path) for path, text in (*links, ("/-/ready", "ready"))]
    return tag("nav", tag("p", [[anchor, " "] for anchor in anchors]), aria_label="Links")


def _state(view: View) -> Markup:
    rows: list[Sequence[object]] = []
    looks = {look.name: look for look in view.poll.daemons} if view.poll is not None else {}
    for daemon in view.daemons:
        look = looks.get(daemon)
        if look is None:
            rows.append((daemon, f"unknown: {view.poll_unknown or 'no_poll_yet'}"))
        elif look.servers.value is None:
            rows.append((daemon, f"unknown: {look.servers.unknown_reason}"))
        else:
            states = [f"server {server.pid}: {server.server_state or 'unknown'}" for server in look.servers.value]
            rows.append((daemon, ", ".join(states) or "no server"))
    if view.paused:
        rows.append(("sweeps", "paused by an operator"))
    if view.archive.fault is not None:
        rows.append(("archive", view.archive.fault))
    for (daemon, uuid), pids in sorted(view.stuck.items()):
        if pids:
            rows.append((f"{daemon} {uuid}", f"stuck measuring clients: {', '.join(map(str, pids))}"))
    when = f", polled {_time(view.poll.finished_at)}" if view.poll is not None else ""
    return _table(f"State{when}", ("what", "state"), rows)


def _curve(view: View) -> Markup:
    rows: list[Sequence[object]] = []
    for target, health in sorted(view.sweeps.items()):
        if health.document is None:
            rows.append((*target, "", "unknown: stale", "", ""))
        else:
            rows.extend((*target, f"{cell.cap} %", *_numbers(cell)) for cell in health.document.cells)
    heads = ("daemon", "GPU", "plan", "cap", "TFLOPS", "SMs", "managed")
    return _table("Newest run", heads, rows) if rows else Markup()


def _numbers(cell: Cell) -> tuple[str, str, str]:
    throughput = f"{cell.tflops:.1f}" if cell.tflops is not None else f"unknown: {cell.unknown_reason}"
    multiprocessors = str(cell.sm_count) if cell.sm_count is not None else "unknown"
    if cell.sm_count_as_expected is False:
        multiprocessors += " (not what the cap implies)"
    managed = {True: "yes", False: "no", None: "unknown"}[cell.self_was_managed]
    return throughput, multiprocessors, managed


def _runs(view: View) -> Markup:
    rows = [
        (_time(run.at), run.target.daemon, run.target.gpu_uuid, run.target.plan, run.outcome, run.reason or "", note)
        for run in view.runs
        for note in (run.message or "",)
    ]
    return _table("Last runs", ("time", "daemon", "GPU", "plan", "outcome", "reason", "note"), rows)


def _refused(view: View) -> Markup:
    rows = [
        (target.daemon, target.gpu_uuid, target.plan, event.reason or "", event.message)
        for target, event in sorted(view.refused.items())
    ]
    return _table("Refused now", ("daemon", "GPU", "plan", "reason", "what was seen"), rows) if rows else Markup()


def _tenants(view: View) -> Markup:
    found = view.poll.tenants.value if view.poll is not None else None
    rows = [
        (
            tenant.gpu_uuid or "",
            tenant.kind,
            tenant.pid,
            tenant.process_name or "",
            "unknown" if tenant.uid is None else tenant.uid,
            "unknown" if tenant.used_memory_bytes is None else f"{tenant.used_memory_bytes / 2**20:.0f} MiB",
        )
        for tenant in found or ()
    ]
    return _table("Tenants", ("GPU", "kind", "pid", "process", "uid", "memory"), rows)


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Markup:
    head = tag("tr", [tag("th", text, scope="col") for text in heads])
    body = [tag("tr", [tag("td", value) for value in row]) for row in rows]
    if not body:
        body = [tag("tr", tag("td", "none", colspan=str(len(heads))))]
    return tag("table", tag("caption", caption), tag("thead", head), tag("tbody", body))


def _time(at: datetime) -> Markup:
    text = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return tag("time", text, datetime=at.isoformat())
