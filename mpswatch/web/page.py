"""The page at `/`: what a person wants on one screen, from the same view that metrics are read from."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

from mpswatch.documents import DaemonLook
from mpswatch.latest import Target, View
from mpswatch.markup.html import Markup, document, moment, style, table, tag, void
from mpswatch.markup.style import CSS
from mpswatch.web import page_tenants
from mpswatch.web.page_curve import curve_section
from mpswatch.web.page_unknown import unknowns

SCRIPT = Path(__file__).with_name("page_live.js").read_bytes()
"""What brings the page up to date while it is open, served at /static/live.js."""

POLICY = (
    "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    "script-src 'self'; connect-src 'self'; img-src data:; "
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(CSS.encode()).digest()).decode()}'"
)

MIB = 1 << 20
RECENT_EVENTS = 8
RECENT_SWEEPS = 10


def page(view: View, verdict: str, *, private: bool) -> str:
    """Write the page. Users and command lines are shown only where `private` (behind a password)."""
    main = tag(
        "main",
        tag(
            "div",
            _state(view, verdict),
            [curve_section(view, target, health) for target, health in sorted(view.sweeps.items())],
            _never_swept(view),
            _tenants(view, "foreign", private=private),
            _tenants(view, "managed", private=private),
            _runs(view),
            _unknowns(view),
            _events(view),
            class_="grid",
        ),
        id="main",
    )
    return shell(view.host, view.mpswatch_version, main, simulated=view.simulated, every=view.poll_interval, live=True)


def shell(host: str, version: str, main: Markup, *, simulated: bool, every: float = 0.0, live: bool = False) -> str:
    """Write what every page has around its content. Each page of a simulated stack says so in title and banner."""
    seconds = str(max(2, math.ceil(every)))
    title = ("[SIMULATED] " if simulated else "") + f"mpswatch on {host}"
    refresh = tag("noscript", void("meta", http_equiv="refresh", content=seconds)) if live else Markup()
    banner = "SIMULATED: all of this comes from a rehearsal stack. No GPU was measured."
    links = (("/", "status"), ("/metrics", "metrics"), ("/api/v1/latest", "latest documents (JSON)"))
    return document(
        tag(
            "html",
            tag(
                "head",
                void("meta", charset="utf-8"),
                void("meta", name="viewport", content="width=device-width,initial-scale=1"),
                tag("title", title),
                void("link", rel="icon", href="data:,"),
                style(CSS),
                refresh,
                tag("script", src="/static/live.js", defer=True) if live else Markup(),
            ),
            tag(
                "body",
                tag("a", "Skip to content", href="#main", class_="skip"),
                tag("aside", banner, class_="simulated", aria_label="Simulated") if simulated else Markup(),
                tag("header", tag("h1", f"mpswatch on {host}"), class_="top"),
                main,
                tag(
                    "footer",
                    tag(
                        "nav", tag("p", [[tag("a", text, href=path), " "] for path, text in links]), aria_label="Links"
                    ),
                    tag(
                        "p",
                        f"mpswatch {version} ",
                        tag("button", "Pause updates", id="pause", type="button", hidden=True),
                    )
                    if live
                    else tag("p", f"mpswatch {version}"),
                    tag("p", id="live", role="status") if live else Markup(),
                ),
            ),
            lang="en",
            data_every=seconds,
        )
    )


def _state(view: View, verdict: str) -> Markup:
    tiles: list[tuple[object, object]] = [("Sweeps", verdict)]
    looks = {look.name: look for look in view.poll.daemons} if view.poll is not None else {}
    for daemon in view.daemons:
        tiles += [(f"MPS {daemon}", text) for text in _daemon(view, looks.get(daemon))]
    tiles += page_tenants.tiles(view.poll)
    if view.poll is not None:
        for look in view.poll.gpus.value or ():
            gpu, conditions = look.gpu, look.conditions
            used, total = conditions.memory_used_bytes, gpu.memory_total_bytes
            memory = f"{_gib(used)} of {_gib(total)} GiB used"
            tiles.append((f"GPU {gpu.index}, {_short(gpu.uuid)}", f"{gpu.name}, {memory}"))
    if view.paused:
        tiles.append(("Paused", tag("span", "by an operator", class_="odd")))
    if view.archive.fault is not None:
        tiles.append(("Archive", tag("span", view.archive.fault, class_="wrong")))
    for (daemon, uuid), pids in sorted(view.stuck.items()):
        if pids:
            text = f"{', '.join(map(str, pids))} on {_short(uuid)}"
            tiles.append((f"Stuck measuring clients, {daemon}", tag("span", text, class_="wrong")))
    for target, event in sorted(view.refused.items()):
        text = tag("span", f"{event.reason}: {event.message}", class_="wrong")
        tiles.append((f"Refused now, {target.daemon} {_short(target.gpu_uuid)}", text))
    polled = ("polled ", moment(view.poll.finished_at)) if view.poll is not None else "no poll"
    return tag(
        "section",
        tag("h2", "Now"),
        tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in tiles], class_="tiles"),
        tag("p", polled, class_="soft"),
    )


def _daemon(view: View, look: DaemonLook | None) -> Sequence[Markup]:
    if look is None:
        return [tag("span", f"unknown: {view.poll_unknown or 'no_poll_yet'}", class_="odd")]
    if look.servers.value is None:
        return [tag("span", f"unknown: {look.servers.unknown_reason}", class_="odd")]
    said = []
    for server in look.servers.value:
        clients = len(server.clients) if server.clients is not None else "unknown"
        limit = f" of {server.context_limit}" if server.context_limit is not None else ""
        state = server.server_state or "state unknown"
        text = f"{state}, server {server.pid}, {clients}{limit} clients"
        said.append(tag("span", text, class_="good" if state == "ACTIVE" else "odd"))
    return said or [tag("span", "up, no server", class_="soft")]


def _never_swept(view: View) -> Markup:
    missing = [target for target in view.to_measure if target not in view.sweeps]
    if not missing:
        return Markup()
    lines = [tag("p", f"{_name(target)}: no run yet (never_seen).") for target in missing]
    return tag("section", tag("h2", "Not swept yet"), lines)


def _tenants(view: View, kind: str, *, private: bool) -> Markup:
    title = "Foreign: on the GPU outside MPS" if kind == "foreign" else "Managed by MPS"
    snapshot = view.poll
    found = snapshot.tenants.value if snapshot is not None else None
    if snapshot is None or found is None:
        reason = view.poll_unknown if snapshot is None else snapshot.tenants.unknown_reason
        return tag("section", tag("h2", title), tag("p", f"unknown: {reason}", class_="odd"), class_="half")
    hidden = [
        tag("p", f"On {_short(uuid)} unknown: {reason}", class_="odd")
        for uuid, reason in sorted(snapshot.foreign_unknown.items())
        if kind == "foreign"
    ]
    heads = ["process", "where", "pid", "GPU", "memory, MiB", "since"] + (["user", "command line"] if private else [])
    rows = [
        [
            (
                tenant.process_name or f"unknown: {tenant.unknown.get('process_name', 'not_recorded')}",
                (" ", said) if (said := page_tenants.standing(tenant)) is not None else "",
            ),
            page_tenants.where(tenant),
            tenant.pid,
            _short(tenant.gpu_uuid or ""),
            f"{tenant.used_memory_bytes // MIB}" if tenant.used_memory_bytes is not None else "unknown",
            moment(tenant.first_seen_at) if tenant.first_seen_at is not None else "unknown",
            *(page_tenants.whose(tenant) if private else ()),
        ]
        for tenant in sorted(found, key=lambda tenant: -(tenant.used_memory_bytes or 0))
        if tenant.kind == kind or (kind == "foreign" and tenant.kind == "unresolved")
    ]
    shown = (
        table(f"{kind}: {len(rows)} processes", heads, rows, numbers=(2, 4))
        if rows
        else tag("p", "none", class_="soft")
    )
    return tag("section", tag("h2", title), hidden, shown, class_="half")


def _runs(view: View) -> Markup:
    rows = [
        [
            tag("a", moment(run.at), href=f"/runs/{run.run_id}") if run.run_id else moment(run.at),
            tag("span", run.outcome, class_={"complete": "good", "partial": "odd"}.get(run.outcome, "wrong")),
            run.reason or "",
            tag("span", _name(run.target), class_="short"),
            tag("span", _clipped(run.message or ""), class_="long"),
        ]
        for run in view.runs[:RECENT_SWEEPS]
    ]
    shown = table("Sweeps, newest first", ("time", "outcome", "reason", "of", "note"), rows)
    return tag("section", tag("h2", "Recent sweeps"), shown, class_="half")


def _unknowns(view: View) -> Markup:
    rows = unknowns(view)
    shown = (
        table(f"{len(rows)} lines, nothing left out", ("what", "where", "reason"), rows)
        if rows
        else tag("p", "nothing")
    )
    return tag("section", tag("h2", "Unknown now, and why"), shown, class_="half")


def _events(view: View) -> Markup:
    rows = [
        (moment(event.at), event.kind, event.daemon or "", tag("span", event.message, class_="long"))
        for event in view.events[:RECENT_EVENTS]
    ]
    return tag("section", tag("h2", "Events"), table("Events, newest first", ("time", "kind", "daemon", "what"), rows))


def _name(target: Target) -> str:
    return f"{target.daemon}, {_short(target.gpu_uuid) or 'GPU unknown'}, {target.plan}"


def _short(uuid: str) -> str:
    return "-".join(uuid.split("-")[:2])


def _clipped(text: str) -> str:
    """The beginning of a long note; the run's own page has all of it."""
    return text if len(text) <= 160 else text[:159] + "…"


def _gib(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 2**30:.1f}"
