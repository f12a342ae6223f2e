"""The page of one run, at /runs/RUN: its curve, cells and log lines, and the document itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from mpswatch.documents import Cell, Conditions, Event, SweepDocument
from mpswatch.markup.html import Markup, moment, number, table, tag
from mpswatch.web.api import without_users
from mpswatch.web.page import shell
from mpswatch.web.page_curve import caps_table, picture_of


class FoundRun(NamedTuple):
    """A run of the archive, with the journal's lines about it (oldest first)."""

    document: SweepDocument
    events: Sequence[Event]


def run_page(found: FoundRun, *, version: str, private: bool) -> str:
    """Write the page. Users, command lines and environments are shown only where `private`."""
    run = found.document
    main = tag(
        "main",
        tag(
            "div",
            _summary(run, private=private),
            tag("section", tag("h2", "Curve"), picture_of(run, None), class_="half"),
            tag("section", tag("h2", "Caps"), caps_table(run, None, history=False), _evidence(run), class_="half"),
            tag("section", tag("h2", "Cells"), _cells(run)),
            _beside(run),
            tag("section", tag("h2", "Log"), _log(found.events), class_="half"),
            _document(run, private=private),
            class_="grid",
        ),
        id="main",
    )
    return shell(run.host, version, main, simulated=run.simulated)


def _summary(run: SweepDocument, *, private: bool) -> Markup:
    protocol, gpu, mps = run.protocol, run.gpu, run.mps
    work = f"{protocol.dtype} {protocol.op} {protocol.matrix_size}, {protocol.iters} iterations, plan {protocol.plan}"
    server = f"server {mps.server_pid}, {mps.server_state or 'state unknown'}" if mps is not None else "not recorded"
    tiles: list[tuple[str, object]] = [
        (
            "Outcome",
            tag("span", "complete", class_="good") if run.complete_sweep else tag("span", "partial", class_="odd"),
        ),
        ("Started", moment(run.started_at) if run.started_at is not None else "not recorded"),
        ("Recorded", moment(run.recorded_at)),
        ("Protocol", work),
        ("GPU", f"{gpu.name}, {gpu.uuid}" if gpu is not None else "not recorded"),
        ("Driver", (gpu.driver_version if gpu is not None else None) or "not recorded"),
        ("MPS", f"{mps.daemon}: {server}" if mps is not None else server),
        ("Trigger", run.trigger or "not recorded"),
        ("mpswatch", run.mpswatch_version or "not recorded"),
    ]
    if private:
        tiles.append(("Client", protocol.client_runtime))
    note = tag("p", run.partial_run_note, class_="odd") if run.partial_run_note else Markup()
    stuck = tag("p", f"Stuck clients: {run.stuck_clients}", class_="wrong") if run.stuck_clients else Markup()
    rows = [tag("div", tag("dt", name), tag("dd", value)) for name, value in tiles]
    return tag(
        "section", tag("h2", f"Run {run.run_id or 'without an id'}"), tag("dl", rows, class_="tiles"), note, stuck
    )


def _evidence(run: SweepDocument) -> Markup:
    judged = [cell for cell in run.cells if cell.verdict is not None]
    if not judged:
        return Markup()
    items = [
        tag("li", f"{cell.cap} %, {cell.verdict.verdict.replace('_', ' ')}: {' '.join(cell.verdict.evidence)}")
        for cell in judged
        if cell.verdict is not None
    ]
    return tag("details", tag("summary", "Evidence for the verdicts"), tag("ul", items), id="evidence")


def _cells(run: SweepDocument) -> Markup:
    heads = ("cap", "order", "TFLOPS", "seconds", "clock before/after, MHz", "power before/after, W", "managed", "note")
    rows = [
        (
            f"{cell.cap} %",
            "" if cell.order is None else cell.order,
            number(cell.tflops),
            "unknown" if cell.seconds is None else f"{cell.seconds:.6f}",
            _pair(cell, "sm_clock_mhz"),
            _pair(cell, "power_watts"),
            {True: "yes", False: "no", None: "unknown"}[cell.self_was_managed],
            _note(cell),
        )
        for cell in run.cells
    ]
    return table("Each cell as it was measured", heads, rows, numbers=(1, 2, 3))


def _pair(cell: Cell, field: str) -> str:
    def said(conditions: Conditions | None) -> str:
        value = getattr(conditions, field, None)
        return "unknown" if value is None else f"{value:.0f}"

    return f"{said(cell.conditions_before)} / {said(cell.conditions_after)}"


def _note(cell: Cell) -> str:
    parts = [part for part in (cell.unknown_reason, cell.failure) if part]
    throttled = cell.conditions_after.throttle_reasons if cell.conditions_after is not None else None
    if throttled:
        parts.append(f"throttled: {', '.join(throttled)}")
    if cell.pieces is not None and cell.pieces.host_bound:
        parts.append("host bound")
    return "; ".join(parts)


def _beside(run: SweepDocument) -> Markup:
    heading = tag("h2", "Foreign tenants beside it")
    tenants = run.unmanaged_tenants
    if tenants.value is None:
        return tag("section", heading, tag("p", f"unknown: {tenants.unknown_reason}", class_="odd"), class_="half")
    rows = [
        (
            tenant.process_name or f"unknown: {tenant.unknown.get('process_name', 'not_recorded')}",
            tenant.pid,
            "unknown" if tenant.used_memory_mb is None else tenant.used_memory_mb,
        )
        for tenant in tenants.value
    ]
    shown = table("Before the first cell", ("process", "pid", "memory, MiB"), rows, numbers=(1, 2))
    return tag("section", heading, shown, class_="half")


def _log(events: Sequence[Event]) -> Markup:
    rows = [(moment(event.at), event.kind, event.reason or "", event.message) for event in events]
    return table("The journal's lines about this run", ("time", "kind", "reason", "what"), rows)


def _document(run: SweepDocument, *, private: bool) -> Markup:
    plain = msgspec.to_builtins(run)
    text = msgspec.json.format(msgspec.json.encode(plain if private else without_users(plain)), indent=2).decode()
    lines = [tag("span", line) + "\n" for line in text.split("\n")]
    whole = "" if private else " Users, command lines and environments are left out: they are shown behind a password."
    shown = tag("details", tag("summary", "Show"), tag("pre", *map(Markup, lines), tabindex="0"), id="document")
    return tag("section", tag("h2", "Document"), tag("p", "As archived." + whole, class_="soft"), shown)


def missing_page(run_id: str, host: str, *, version: str, simulated: bool) -> str:
    """Say that there is no such run (any more)."""
    text = f"No run {run_id} is in the archive. It may have been removed by age or size (archive.keep_age, keep_bytes)."
    main = tag("main", tag("div", tag("section", tag("h2", "Not found"), tag("p", text)), class_="grid"), id="main")
    return shell(host, version, main, simulated=simulated)
