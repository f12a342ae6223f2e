"""The report as one HTML file: pictures within, no script, nothing loaded; readable as it is, printed too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from mpswatch.documents import Event
from mpswatch.markup.charts import timeline
from mpswatch.markup.html import Markup, document, moment, style, table, tag, void
from mpswatch.markup.style import CSS
from mpswatch.report.gathering import Period
from mpswatch.report.neighbours import interference
from mpswatch.report.series import series

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_LINES = 200


def write(period: Period) -> str:
    """Write the report."""
    title = ("[SIMULATED] " if period.simulated else "") + f"mpswatch report, {_span(period)}"
    banner = "SIMULATED: (some of) this comes from a rehearsal stack. No GPU was measured there."
    return document(
        tag(
            "html",
            tag(
                "head",
                void("meta", charset="utf-8"),
                void("meta", http_equiv="Content-Security-Policy", content=_POLICY),
                void("meta", name="viewport", content="width=device-width,initial-scale=1"),
                tag("title", title),
                style(CSS),
            ),
            tag(
                "body",
                tag("aside", banner, class_="simulated", aria_label="Simulated") if period.simulated else Markup(),
                tag("header", tag("h1", title), class_="top"),
                tag(
                    "main",
                    tag(
                        "div",
                        _summary(period),
                        [series(one) for one in period.series],
                        [interference(one) for one in period.interferences],
                        _tenants(period),
                        _refusals(period.events),
                        _unknown(period),
                        _events(period.events),
                        class_="grid",
                    ),
                ),
            ),
            lang="en",
        )
    )


def _summary(period: Period) -> Markup:
    runs = [run for one in period.series for run in one.runs]
    outcomes = Counter(run.outcome for run in runs)
    refused = sum(event.kind == "sweep_refused" for event in period.events)
    begins = period.journal_from
    journal: object = "empty" if begins is None else ("kept since ", moment(begins))
    tiles: list[tuple[str, object]] = [
        ("Archive", period.archive),
        ("From", moment(period.first)),
        ("Until", moment(period.until)),
        ("Made", moment(period.made_at)),
        ("Series", len(period.series)),
        ("Runs", ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())) or "none"),
        ("Interference", f"{sum(len(one.documents) + one.left_out for one in period.interferences)} measurements"),
        ("Refused", refused),
        ("Journal", journal),
        ("mpswatch", _versions(run.version for run in runs)),
        ("Drivers", _versions(run.driver for run in runs)),
        ("GPUs", _versions(run.gpu_name for run in runs)),
    ]
    rows = [tag("div", tag("dt", name), tag("dd", value)) for name, value in tiles]
    how = (
        "Runs of different hosts, GPUs, daemons, plans, sizes, dtypes, iterations or clients are kept apart throughout."
    )
    return tag("section", tag("h2", "Summary"), tag("dl", rows, class_="tiles"), tag("p", how, class_="soft"))


def _tenants(period: Period) -> Markup:
    heading = tag("h2", "Tenants over time")
    if not period.stays:
        said = "The journal names no tenant that came or left in this period."
        return tag("section", heading, tag("p", said, class_="soft"))
    picture = timeline(period.stays, period.first, period.until, title="Who was on the GPUs, by the journal")
    more = tag("p", f"{period.more_stays} more are not drawn.", class_="odd") if period.more_stays else Markup()
    heads = ("who", "since", "until")
    rows = [
        (
            stay.name,
            moment(stay.since) if stay.since is not None else "before the journal begins",
            moment(stay.until) if stay.until is not None else "still there",
        )
        for stay in period.stays
    ]
    return tag("section", heading, picture, more, table("Tenants", heads, rows))


def _refusals(events: Sequence[Event]) -> Markup:
    counts = Counter(
        (event.kind, event.daemon or "", str(event.reason or ""))
        for event in events
        if event.kind in {"sweep_refused", "sweep_failed"}
    )
    newest = {(event.kind, event.daemon or "", str(event.reason or "")): event for event in events}
    rows = [
        (reason, kind, daemon, count, moment(newest[kind, daemon, reason].at), newest[kind, daemon, reason].message)
        for (kind, daemon, reason), count in counts.most_common()
    ]
    heads = ("reason", "kind", "daemon", "times", "newest", "what was seen then")
    return tag("section", tag("h2", "Refused and failed sweeps"), table("By reason", heads, rows, numbers=(3,)))


def _unknown(period: Period) -> Markup:
    counts: Counter[tuple[str, str, str]] = Counter()
    for one in period.series:
        for cap in one.caps:
            for reason, count in cap.missing.items():
                counts[cap.title, one.series.title, reason] += count
    for neighbours in period.interferences:
        for matrix in neighbours.documents:
            for cell in (*matrix.solo, *matrix.pairs):
                if cell.unknown_reason is not None:
                    where = f"{neighbours.gpu_uuid} under {neighbours.daemon} on {neighbours.host}"
                    counts[f"{cell.victim_kind} {cell.victim_cap} % beside others", where, cell.unknown_reason] += 1
    rows: list[tuple[object, ...]] = [(*key, count) for key, count in counts.most_common()]
    rows += [
        ("a file of the archive", name.split(": ", 1)[0], name.split(": ", 1)[-1], 1) for name in period.unreadable
    ]
    heads = ("what", "where", "reason", "times")
    return tag("section", tag("h2", "Unknown, and why"), table("What has no number", heads, rows, numbers=(3,)))


def _events(events: Sequence[Event]) -> Markup:
    shown = [event for event in events if not event.kind.startswith(("tenant_", "sweep_started"))]
    rows = [(moment(event.at), event.kind, event.daemon or "", event.message) for event in shown[-_LINES:][::-1]]
    left = f" ({len(shown) - _LINES} older ones left out)" if len(shown) > _LINES else ""
    heads = ("time", "kind", "daemon", "what")
    return tag("section", tag("h2", "Events"), table(f"Newest first{left}", heads, rows))


def _versions(found: Iterable[str | None]) -> str:
    counts = Counter(version or "not recorded" for version in found)
    return ", ".join(f"{version} ({count})" for version, count in sorted(counts.items())) or "none"


def _span(period: Period) -> str:
    return f"{period.first:%Y-%m-%d %H:%M} to {period.until:%Y-%m-%d %H:%M} UTC"
