"""What a report says, as plain values: read from archive and journal, nothing averaged across series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from mpswatch.archive import Archive, ArchiveError
from mpswatch.archive.interference import Interferences
from mpswatch.documents import CapStanding, Event, InterferenceDocument, Quantity
from mpswatch.evidence.quantities import WORDS
from mpswatch.history import LOOK_BACK, Amount, Index, RunFacts, Series, judge_each, read_with_index
from mpswatch.journal import Journal
from mpswatch.markup.charts import Stay

MOST_RUNS = 5000
"""So many runs of one series are in a report at most, the newest of the period; it says so where some are left out."""

MOST_MATRICES = 10
"""So many interference measurements of one daemon and GPU, likewise."""

_STAYS = 40


@dataclass(frozen=True, slots=True)
class CapReport:
    """One quantity of one cap over the period: each run's amount (None: a gap) with how the run stood."""

    cap: str
    quantity: Quantity
    amounts: tuple[Amount | None, ...]
    standings: tuple[CapStanding, ...]
    missing: Counter[str]

    @property
    def title(self) -> str:
        return f"{self.cap} % {WORDS[self.quantity]}"

    @property
    def known(self) -> list[float]:
        """The numbers that there are, in TFLOPS."""
        return [amount.tflops for amount in self.amounts if amount is not None]


@dataclass(frozen=True, slots=True)
class SeriesReport:
    """One series: its runs in the period (oldest first), so many `left_out` before them, and each cap's way."""

    series: Series
    runs: tuple[RunFacts, ...]
    left_out: int
    caps: tuple[CapReport, ...]

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        return self.runs[-1].quantities


@dataclass(frozen=True, slots=True)
class InterferenceReport:
    """What was measured of neighbours on one GPU under one daemon, newest first; `left_out` are older ones."""

    host: str
    daemon: str
    gpu_uuid: str
    documents: tuple[InterferenceDocument, ...]
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Everything of a report. `journal_from` is where the kept journal begins: before that, nothing is known of it."""

    archive: str
    since: datetime | None
    until: datetime
    made_at: datetime
    series: tuple[SeriesReport, ...]
    interferences: tuple[InterferenceReport, ...]
    events: tuple[Event, ...]
    journal_from: datetime | None
    stays: tuple[Stay, ...]
    more_stays: int
    unreadable: tuple[str, ...]

    @property
    def simulated(self) -> bool:
        return (
            any(one.series.simulated for one in self.series)
            or any(document.simulated for one in self.interferences for document in one.documents)
            or any(event.simulated for event in self.events)
        )

    @property
    def first(self) -> datetime:
        """Where the period begins: as asked for, else with the oldest thing in it."""
        starts = [one.runs[0].started for one in self.series if one.runs] + [event.at for event in self.events[:1]]
        starts += [one.documents[-1].started_at for one in self.interferences]
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
    interferences, unread = _interferences(Interferences(archive.directory), since, end)
    return Period(
        archive=str(archive.directory),
        since=since,
        until=end,
        made_at=now,
        series=tuple(series),
        interferences=interferences,
        events=tuple(events),
        journal_from=kept[0].at if kept else None,
        stays=stays,
        more_stays=more,
        unreadable=(*unreadable, *unread),
    )


def _series(index: Index, series: Series, since: datetime | None, until: datetime) -> SeriesReport:
    runs = list(index.runs(series, since=since, until=until, newest=MOST_RUNS + 1))
    left_out = len(runs) - MOST_RUNS if len(runs) > MOST_RUNS else 0
    runs = runs[left_out:]
    before = list(index.runs(series, until=runs[0].started, newest=LOOK_BACK)) if runs else []
    caps = dict.fromkeys(facts.cap for run in runs for facts in run.caps)
    quantities = dict.fromkeys(quantity for run in runs[-1:] for quantity in run.quantities)
    reports = [_cap(runs, before, cap, quantity) for cap in caps for quantity in quantities]
    return SeriesReport(series, tuple(runs), left_out, tuple(reports))


def _cap(runs: list[RunFacts], before: list[RunFacts], cap: str, quantity: Quantity) -> CapReport:
    amounts: list[Amount | None] = []
    missing: Counter[str] = Counter()
    for run in runs:
        facts = run.of(cap)
        amount = facts.amount(quantity) if facts is not None else None
        amounts.append(amount)
        if amount is None:
            missing["not in this run" if facts is None else facts.reason or "not_recorded"] += 1
    standings = judge_each([*before, *runs], cap, quantity, first=len(before))
    return CapReport(cap, quantity, tuple(amounts), tuple(standings), missing)


def _interferences(
    kept: Interferences, since: datetime | None, until: datetime
) -> tuple[tuple[InterferenceReport, ...], list[str]]:
    """Read those of the period, by host, daemon and GPU; with the files that could not be read."""
    found: dict[tuple[str, str, str], list[InterferenceDocument]] = {}
    unreadable = []
    for path in kept.between(since, until):
        try:
            document = kept.read(path)
        except ArchiveError as error:
            unreadable.append(f"{path.name}: {error.detail.removeprefix(f'{path}: ')}")
            continue
        daemon = document.mps.daemon if document.mps is not None else document.pipe_directory
        gpu = document.gpu.uuid if document.gpu is not None else ""
        found.setdefault((document.host, daemon, gpu), []).append(document)
    reports = (
        InterferenceReport(*key, tuple(documents[:MOST_MATRICES]), max(0, len(documents) - MOST_MATRICES))
        for key, documents in sorted(found.items())
    )
    return tuple(reports), unreadable


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
