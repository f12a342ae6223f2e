"""The page at `/`: what a person wants on one screen, from the same view that metrics are read from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpswatch.documents import WORKING_STATES, DaemonLook
from mpswatch.evidence.limits import given
from mpswatch.latest import Target, View
from mpswatch.markup.html import Markup, moment, table, tag
from mpswatch.web import page_tenants
from mpswatch.web.page import shell
from mpswatch.web.page_curve import curve_section
from mpswatch.web.page_interference import interference_section
from mpswatch.web.page_unknown import unknowns

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
            [interference_section(*key, health) for key, health in sorted(view.interferences.items())],
            page_tenants.section(view, "foreign", private=private),
            page_tenants.section(view, "managed", private=private),
            _runs(view),
            _unknowns(view),
            _events(view),
            class_="grid",
        ),
        id="main",
    )
    return shell(view.host, view.mpswatch_version, main, simulated=view.simulated, every=view.poll_interval, live=True)


def _state(view: View, verdict: str) -> Markup:
    tiles: list[tuple[object, object]] = [("Sweeps", verdict)]
    looks = {look.name: look for look in view.poll.daemons} if view.poll is not None else {}
    for daemon in view.daemons:
        tiles += [(f"MPS {daemon}", text) for text in _daemon(view, looks.get(daemon))]
        tiles += _limits(looks.get(daemon))
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
        said.append(tag("span", text, class_="good" if state in WORKING_STATES else "odd"))
    return said or [tag("span", "up, no server", class_="soft")]


def _limits(look: DaemonLook | None) -> Iterator[tuple[str, object]]:
    """What each client is given at most, where that is less than everything."""
    if look is None:
        return
    for clients_of, at_most in given(look):
        asked = (", asked ", moment(look.limits_asked_at)) if look.limits_asked_at is not None else ""
        source = tag("small", look.servers.source, asked, class_="soft")
        yield f"MPS {look.name}, each client of {clients_of}", ("at most ", ", ".join(at_most), tag("div", source))


def _never_swept(view: View) -> Markup:
    missing = [target for target in view.to_measure if target not in view.sweeps]
    if not missing:
        return Markup()
    lines = [tag("p", f"{_name(target)}: no run yet (never_seen).") for target in missing]
    return tag("section", tag("h2", "Not swept yet"), lines)


def _runs(view: View) -> Markup:
    rows = [
        [
            tag("a", moment(run.at), href=f"/runs/{run.run_id}") if run.run_id else moment(run.at),
            tag("span", run.outcome, class_={"complete": "good", "partial": "odd"}.get(run.outcome, "wrong")),
            run.reason or "",
            _name(run.target),
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
