"""The page of one run, at /runs/RUN: its curve, cells and log lines, and the document itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mpswatch.documents import Cell, Conditions, Event, SweepDocument
from mpswatch.evidence.quantities import WORDS, quantities_of
from mpswatch.markup.html import Markup, moment, number, table, tag
from mpswatch.web.page import shell
from mpswatch.web.page_curve import caps_table, picture_of
from mpswatch.web.page_parts import beside, document_section, log


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
            tag("section", tag("h2", "Curve"), picture_of(run, None), class_="third"),
            tag("section", tag("h2", "Caps"), caps_table(run, None, history=False), _evidence(run), class_="wide"),
            tag("section", tag("h2", "Cells"), _cells(run)),
            beside(run.unmanaged_tenants),
            log(found.events),
            document_section(run, private=private),
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
    passed = "" if quantities_of(run) == ("tflops",) else ", the median pass"
    heads = (
        "cap",
        "order",
        f"{WORDS['tflops']} TFLOPS{passed}",
        f"seconds{passed}",
        "clock before/after, MHz",
        "power before/after, W",
        "managed",
        "note",
    )
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


def missing_page(what: str, host: str, *, version: str, simulated: bool) -> str:
    """Say that there is no such run or measurement (any more)."""
    text = f"No {what} is in the archive. It may have been removed by age or size (archive.keep_age, keep_bytes)."
    main = tag("main", tag("div", tag("section", tag("h2", "Not found"), tag("p", text)), class_="grid"), id="main")
    return shell(host, version, main, simulated=simulated)
