"""From a run to the fact that says how it stands: what the daemon records after each sweep, off its loop."""

from __future__ import annotations

from datetime import datetime

from mpswatch.archive import Archive
from mpswatch.documents import HistoryLook, PastRun, Quantity, SweepDocument
from mpswatch.history.facts import RunFacts, facts_of
from mpswatch.history.index import read_with_index
from mpswatch.history.judging import LOOK_BACK, judge_all
from mpswatch.history.queries import Index

SHOWN = 30
"""So many earlier runs travel with the fact, for the page."""


def look_back(archive: Archive, document: SweepDocument, *, now: datetime) -> HistoryLook:
    """Say how `document` stands against the archived runs of its series; raises `ArchiveError`.

    Runs that began after it are left out, so an older run is judged as it was then.
    """
    return read_with_index(archive, lambda index: _look(index, facts_of(document), now))


def _look(index: Index, run: RunFacts, now: datetime) -> HistoryLook:
    before = [
        earlier
        for earlier in index.runs(run.series, until=run.started, newest=LOOK_BACK + 1)
        if earlier.run_id != run.run_id or not run.run_id
    ]
    runs = [*before, run]
    return HistoryLook(
        host=run.series.host,
        daemon=run.series.daemon,
        gpu_uuid=run.series.gpu_uuid,
        plan=run.series.plan,
        run_id=run.run_id,
        judged_at=now,
        simulated=run.series.simulated,
        caps=judge_all(runs),
        previous=tuple(
            PastRun(
                run_id=earlier.run_id,
                at=earlier.started,
                tflops={facts.cap: facts.tflops for facts in earlier.caps},
                burst=_of(earlier, "burst"),
                sustained=_of(earlier, "sustained"),
            )
            for earlier in before[-SHOWN:]
        ),
        unreadable=len(index.unreadable()),
    )


def _of(run: RunFacts, quantity: Quantity) -> dict[str, float | None]:
    if quantity not in run.quantities:
        return {}
    return {facts.cap: amount.tflops if (amount := facts.amount(quantity)) else None for facts in run.caps}
