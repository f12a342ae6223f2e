"""What neighbours cost: the newest interference measurement of each daemon and GPU, and a page for each measurement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mpswatch.documents import Event, InterferenceCell, InterferenceDocument, Rate
from mpswatch.evidence.matrices import matrices, rate_in_words
from mpswatch.latest import InterferenceHealth
from mpswatch.markup.html import Markup, moment, table, tag
from mpswatch.markup.matrix import matrix_table
from mpswatch.web.page import shell
from mpswatch.web.page_parts import beside, document_section, log


class FoundInterference(NamedTuple):
    """A measurement of the archive, with the journal's lines about it (oldest first)."""

    document: InterferenceDocument
    events: Sequence[Event]


def interference_section(daemon: str, uuid: str, health: InterferenceHealth) -> Markup:
    """Write one daemon's and GPU's section of the status page."""
    short = "-".join(uuid.split("-")[:2]) or "GPU unknown"
    heading = tag("h2", f"Interference: {daemon}, {short}")
    link = tag("a", f"measurement {health.run_id}", href=f"/interference/{health.run_id}")
    when = (link, ", finished ", moment(health.finished_at))
    document = health.document
    if document is None:
        return tag("section", heading, tag("p", "unknown: stale. The newest is ", *when, class_="odd"))
    said = f", {'complete' if document.complete else 'partial'}, {_state(document)}"
    return tag("section", heading, tag("p", *when, said), _matrices(document))


def interference_page(found: FoundInterference, *, version: str, private: bool) -> str:
    """Write the page of one measurement. Users and command lines are shown only where `private`."""
    document = found.document
    main = tag(
        "main",
        tag(
            "div",
            _summary(document, private=private),
            tag("section", tag("h2", "What a neighbour costs"), _matrices(document)),
            tag("section", tag("h2", "Every measurement"), _cells(document)),
            beside(document.unmanaged_tenants),
            log(found.events),
            document_section(document, private=private),
            class_="grid",
        ),
        id="main",
    )
    return shell(document.host, version, main, simulated=document.simulated)


def _matrices(document: InterferenceDocument) -> Markup:
    how = (
        "The share of its own rate that the victim (row) loses beside the aggressor (column), both under sustained "
        "load, with its 95 % interval: the darker, the more. Alone is beside the stack as it is."
    )
    shown = [matrix_table(matrix, of=document.run_id) for matrix in matrices(document)]
    return Markup(tag("div", shown or tag("p", "no pair"), class_="beside") + tag("p", how, class_="soft"))


def _state(document: InterferenceDocument) -> str:
    return "SIMULATED" if document.simulated else "measured"


def _summary(document: InterferenceDocument, *, private: bool) -> Markup:
    protocol, gpu, mps = document.protocol, document.gpu, document.mps
    complete = tag("span", "complete", class_="good") if document.complete else tag("span", "partial", class_="odd")
    tiles: list[tuple[str, object]] = [
        ("Outcome", complete),
        ("State", _state(document)),
        ("Started", moment(document.started_at)),
        ("Finished", moment(document.finished_at)),
        ("Protocol", f"{protocol.dtype} matmul {protocol.size}, windows of {protocol.window_seconds:g} s under load"),
        ("GPU", f"{gpu.name}, {gpu.uuid}" if gpu is not None else "not recorded"),
        ("Driver", (gpu.driver_version if gpu is not None else None) or "not recorded"),
        ("MPS", f"{mps.daemon}: server {mps.server_pid}" if mps is not None else "not recorded"),
        ("Trigger", document.trigger or "not recorded"),
        ("mpswatch", document.mpswatch_version or "not recorded"),
    ]
    if private:
        tiles.append(("Client", protocol.client_runtime))
    rows = [tag("div", tag("dt", name), tag("dd", value)) for name, value in tiles]
    note = tag("p", document.partial_run_note, class_="odd") if document.partial_run_note else Markup()
    stuck = tag("p", f"Stuck clients: {document.stuck_clients}", class_="wrong") if document.stuck_clients else Markup()
    heading = tag("h2", f"Interference {document.run_id}")
    return tag("section", heading, tag("dl", rows, class_="tiles"), note, stuck)


def _cells(document: InterferenceDocument) -> Markup:
    heads = ("victim", "beside", "slowdown", "its rate", "at", "SMs", "the aggressor's rate", "note")
    rows = [
        (
            f"{cell.victim_kind} {cell.victim_cap} %",
            "the stack as it is" if cell.aggressor_cap is None else f"{cell.aggressor_kind} {cell.aggressor_cap} %",
            _slowdown(cell),
            _rate(cell.victim),
            _conditions(cell),
            "unknown" if cell.victim_sm_count is None else cell.victim_sm_count,
            "" if cell.aggressor_cap is None else _rate(cell.aggressor),
            _note(cell),
        )
        for cell in (*document.solo, *document.pairs)
    ]
    return table("Each victim alone, then each pair", heads, rows)


def _slowdown(cell: InterferenceCell) -> object:
    if cell.aggressor_cap is None:
        return ""
    if cell.slowdown is None:
        return tag("span", "unknown", class_="odd")
    if cell.slowdown_low is None or cell.slowdown_high is None:
        return f"{cell.slowdown:.1%}"
    return f"{cell.slowdown:.1%} ({cell.slowdown_low:.1%} to {cell.slowdown_high:.1%})"


def _rate(rate: Rate | None) -> str:
    return "unknown" if rate is None else rate_in_words(rate) + ("" if rate.settled else ", had not settled")


def _conditions(cell: InterferenceCell) -> str:
    seen = cell.conditions_during
    if seen is None or (seen.sm_clock_mhz is None and seen.power_watts is None):
        return "unknown"
    clock = "clock unknown" if seen.sm_clock_mhz is None else f"{seen.sm_clock_mhz:.0f} MHz"
    return f"{clock}, " + ("power unknown" if seen.power_watts is None else f"{seen.power_watts:.0f} W")


def _note(cell: InterferenceCell) -> str:
    parts = [cell.unknown_reason, cell.failure, cell.unknown.get("slowdown")]
    return "; ".join(dict.fromkeys(str(part) for part in parts if part))
