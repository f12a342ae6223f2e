"""What the pages of single measurements share: who was beside it, the journal's lines, and the document itself."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mpswatch.documents import Document, Envelope, Event, ReferenceTenant
from mpswatch.markup.html import Markup, moment, table, tag
from mpswatch.web.api import without_users


def beside(tenants: Envelope[tuple[ReferenceTenant, ...]]) -> Markup:
    """Write who was on the GPU outside MPS."""
    heading = tag("h2", "Foreign tenants beside it")
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


def log(events: Sequence[Event]) -> Markup:
    """Write the journal's lines."""
    rows = [
        (moment(event.at), event.kind, event.reason or "", tag("span", event.message, class_="long"))
        for event in events
    ]
    shown = table("The journal's lines about this run", ("time", "kind", "reason", "what"), rows)
    return tag("section", tag("h2", "Log"), shown, class_="half")


def document_section(document: Document, *, private: bool) -> Markup:
    """Write the document as JSON, to be unfolded."""
    plain = msgspec.to_builtins(document)
    text = msgspec.json.format(msgspec.json.encode(plain if private else without_users(plain)), indent=2).decode()
    lines = [tag("span", line) + "\n" for line in text.split("\n")]
    whole = "" if private else " Users, command lines and environments are left out: they are shown behind a password."
    shown = tag("details", tag("summary", "Show"), tag("pre", *map(Markup, lines), tabindex="0"), id="document")
    return tag("section", tag("h2", "Document"), tag("p", "As archived." + whole, class_="soft"), shown)
