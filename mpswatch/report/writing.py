"""The report as one HTML file: pictures within, no script, nothing loaded; readable as it is, printed too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

from mpswatch.documents import Event
from mpswatch.history import band_of
from mpswatch.markup.charts import CapPoint, Moment, curve, history, timeline
from mpswatch.markup.html import Markup, document, moment, number, style, table, tag, void
from mpswatch.markup.style import CSS
from mpswatch.report.gathering import CapReport, Period, SeriesReport

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_CHANGED = {"below": "bad", "slower_once": "why", "explained": "why", "above": "why"}
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
                        [_series(one) for one in period.series],
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


def pictures(period: Period) -> dict[str, str]:
    """Give each picture as an SVG file of its own, by file name."""
    found: dict[str, str] = {}
    for place, one in enumerate(period.series, start=1):
        for cap in one.caps:
            name = f"{place:02}-{one.series.daemon or 'daemon'}-{one.series.plan}-{cap.cap}-{cap.quantity}.svg"
            found["".join(char if char.isalnum() or char in "-." else "-" for char in name)] = _alone(_way(one, cap))
        found[f"{place:02}-curve.svg"] = _alone(_curve(one))
    return found


def _alone(picture: Markup) -> str:
    light = CSS.split("@media", 1)[0]
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + picture.replace(
        "</title>", f"</title>{style(light + _OF_SVG)}", 1
    )


_OF_SVG = "\n".join(line for line in CSS.splitlines() if line.startswith("svg"))


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


def _series(one: SeriesReport) -> Markup:
    left = (
        tag("p", f"{one.left_out} older runs of the period are left out.", class_="odd") if one.left_out else Markup()
    )
    heads = ("cap", "quantity", "median", "least", "most", "numbers", "without one", "below", "explained", "verdicts")
    rows = [_row(one, cap) for cap in one.caps]
    ways = [tag("section", tag("h3", f"{_title(cap)} over time"), _way(one, cap), _remarks(one, cap), class_="half")
            for cap in one.caps]  # fmt: skip
    return Markup(
        tag(
            "section",
            tag("h2", one.series.title),
            tag("p", f"Client: {one.series.client_runtime}", class_="soft"),
            left,
            _curve(one),
            table(f"Caps over the period, TFLOPS: {one.series.title}", heads, rows, numbers=range(2, 9)),
        )
        + "".join(ways)
    )


def _row(one: SeriesReport, cap: CapReport) -> Sequence[object]:
    known = [amount for amount in cap.amounts if amount is not None]
    stood = Counter(standing.standing for standing in cap.standings)
    verdicts = Counter(facts.verdict or "not judged" for run in one.runs if (facts := run.of(cap.cap)) is not None)
    return (
        f"{cap.cap} %",
        cap.quantity,
        number(median(known) if known else None),
        number(min(known, default=None)),
        number(max(known, default=None)),
        len(known),
        ", ".join(f"{count} {reason}" for reason, count in sorted(cap.missing.items())) or "0",
        stood["below"],
        stood["explained"],
        ", ".join(f"{count} {verdict.replace('_', ' ')}" for verdict, count in sorted(verdicts.items())),
    )


def _curve(one: SeriesReport) -> Markup:
    """The newest run over the others; the band is what the period's runs call usual."""
    newest, earlier = one.runs[-1], one.runs[:-1][-60:]
    points = []
    for facts in newest.caps:
        known = [
            amount for cap in one.caps if (cap.cap, cap.quantity) == (facts.cap, "tflops") for amount in cap.amounts
        ]
        numbers = [amount for amount in known if amount is not None]
        band = band_of(numbers) if len(numbers) >= 8 else None
        points.append(CapPoint(float(facts.cap), facts.tflops, None, (band.low, band.high) if band else None))
    title = f"TFLOPS by cap: run {newest.run_id or newest.started.isoformat()} over {len(earlier)} earlier runs"
    return curve(points, [{facts.cap: facts.tflops for facts in run.caps} for run in earlier], title=title)


def _way(one: SeriesReport, cap: CapReport) -> Markup:
    moments = []
    for run, amount, standing in zip(one.runs, cap.amounts, cap.standings, strict=True):
        facts = run.of(cap.cap)
        found = facts.amount(cap.quantity) if facts is not None else None
        interval = (found.low, found.high) if found and found.low is not None and found.high is not None else None
        moments.append(Moment(run.started, amount, _CHANGED.get(standing.standing, ""), interval))
    known = [amount for amount in cap.amounts if amount is not None]
    band = band_of(known) if len(known) >= 8 else None
    title = f"{_title(cap)}, TFLOPS over time, {len(known)} runs with a number"
    return history(moments, title=title, usual=(band.low, band.high) if band else None)


def _remarks(one: SeriesReport, cap: CapReport) -> Markup:
    rows = [
        tag("li", moment(run.started), f": {number(amount)} TFLOPS, {standing.standing.replace('_', ' ')}",
            f" ({'; '.join(standing.explained_by)})" if standing.explained_by else "",
            f", usually {number(standing.median)}")
        for run, amount, standing in zip(one.runs, cap.amounts, cap.standings, strict=True)
        if standing.standing in _CHANGED
    ]  # fmt: skip
    if not rows:
        return tag("p", "No run stands out.", class_="soft")
    return tag("details", tag("summary", f"{len(rows)} runs stand out"), tag("ul", rows[-_LINES:]))


def _title(cap: CapReport) -> str:
    return f"{cap.cap} %" + ("" if cap.quantity == "tflops" else f", {cap.quantity}")


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
                counts[_title(cap), one.series.title, reason] += count
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
