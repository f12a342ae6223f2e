"""What a report says, as plain values: read from archive and journal, nothing averaged across series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from mpswatch.archive import Archive
from mpswatch.documents import QUANTITIES, CapStanding, Event, Quantity
from mpswatch.history import LOOK_BACK, Index, RunFacts, Series, judge_each, read_with_index
from mpswatch.journal import Journal
from mpswatch.markup.charts import Stay

MOST_RUNS = 5000
"""So many runs of one series are in a report at most, the newest of the period; it says so where some are left out."""

_STAYS = 40


@dataclass(frozen=True, slots=True)
class CapReport:
    """One quantity of one cap over the period: each run's amount (None: a gap) with how the run stood."""

    cap: str
    quantity: Quantity
    amounts: tuple[float | None, ...]
    standings: tuple[CapStanding, ...]
    missing: Counter[str]


@dataclass(frozen=True, slots=True)
class SeriesReport:
    """One series: its runs in the period (oldest first), so many `left_out` before them, and each cap's way."""

    series: Series
    runs: tuple[RunFacts, ...]
    left_out: int
    caps: tuple[CapReport, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Everything of a report. `journal_from` is where the kept journal begins: before that, nothing is known of it."""

    archive: str
    since: datetime | None
    until: datetime
    made_at: datetime
    series: tuple[SeriesReport, ...]
    events: tuple[Event, ...]
    journal_from: datetime | None
    stays: tuple[Stay, ...]
    more_stays: int
    unreadable: tuple[str, ...]

    @property
    def simulated(self) -> bool:
        return any(one.series.simulated for one in self.series) or any(event.simulated for event in self.events)

    @property
    def first(self) -> datetime:
        """Where the period begins: as asked for, else with the oldest thing in it."""
        starts = [one.runs[0].started for one in self.series if one.runs] + [event.at for event in self.events[:1]]
        return self.since or min(starts, default=self.until)


def gather(
    archive: Archive,
    journal: Journal,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,  # noqa: ARG005  # a quiet default
) -> Period:
    """Read a period. Raises `ArchiveError`."""
    now = datetime.now(UTC)
    kept = journal.read()

    def read(index: Index) -> tuple[list[SeriesReport], list[str], datetime]:
        found = []
        # Without an end nothing is cut off, not even what a clock that was once ahead has dated into the future.
        newest_of_all = [newest for _, _, newest in index.series()] + [event.at for event in kept[-1:]]
        end = until or max([now, *(at + timedelta(seconds=1) for at in newest_of_all)])
        for series, _count, newest in index.series():
            if since is None or newest >= since:
                report = _series(index, series, since, end)
                found += [report] if report.runs else []
        return found, [f"{file.path.name}: {file.problem}" for file in index.unreadable()], end

    series, unreadable, end = read_with_index(archive, read, progress=progress)
    events = [event for event in kept if (since is None or event.at >= since) and event.at < end]
    stays, more = _stays(kept, since, end)
    return Period(
        archive=str(archive.directory),
        since=since,
        until=end,
        made_at=now,
        series=tuple(series),
        events=tuple(events),
        journal_from=kept[0].at if kept else None,
        stays=stays,
        more_stays=more,
        unreadable=tuple(unreadable),
    )


def _series(index: Index, series: Series, since: datetime | None, until: datetime) -> SeriesReport:
    runs = list(index.runs(series, since=since, until=until, newest=MOST_RUNS + 1))
    left_out = len(runs) - MOST_RUNS if len(runs) > MOST_RUNS else 0
    runs = runs[left_out:]
    before = list(index.runs(series, until=runs[0].started, newest=LOOK_BACK)) if runs else []
    caps = dict.fromkeys(facts.cap for run in runs for facts in run.caps)
    reports = [
        _cap(runs, before, cap, quantity)
        for cap in caps
        for quantity in QUANTITIES
        if quantity == "tflops" or any(facts.amount(quantity) for run in runs if (facts := run.of(cap)) is not None)
    ]
    return SeriesReport(series, tuple(runs), left_out, tuple(reports))


def _cap(runs: list[RunFacts], before: list[RunFacts], cap: str, quantity: Quantity) -> CapReport:
    amounts: list[float | None] = []
    missing: Counter[str] = Counter()
    for run in runs:
        facts = run.of(cap)
        amount = facts.amount(quantity) if facts is not None else None
        amounts.append(amount.tflops if amount is not None else None)
        if amount is None:
            missing[(facts.reason if facts is not None else None) or "not in this run"] += 1
    standings = judge_each([*before, *runs], cap, quantity, first=len(before))
    return CapReport(cap, quantity, tuple(amounts), tuple(standings), missing)


def _stays(events: Iterable[Event], since: datetime | None, until: datetime) -> tuple[tuple[Stay, ...], int]:
    """Pair arrivals with departures by pid and start; whoever was there before the journal begins has no arrival."""
    there: dict[object, tuple[str, datetime]] = {}
    stays: list[Stay] = []
    for event in events:
        key = (event.details.get("pid"), event.details.get("start_ticks"), event.gpu_uuid)
        name = f"{event.details.get('kind', '')}: {event.details.get('process_name') or '(unnamed)'}"
        if event.kind == "tenant_appeared":
            there[key] = (name, event.at)
        elif event.kind == "tenant_left":
            arrived = there.pop(key, None)
            stays.append(Stay(name, arrived[1] if arrived else None, event.at))
    stays += [Stay(name, at, None) for name, at in there.values()]
    shown = [
        stay
        for stay in stays
        if (stay.since is None or stay.since < until) and (since is None or stay.until is None or stay.until >= since)
    ]
    return tuple(shown[:_STAYS]), max(0, len(shown) - _STAYS)
