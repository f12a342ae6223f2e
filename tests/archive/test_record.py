"""A sink that fails is counted and stops none of the others."""

from __future__ import annotations

import pytest

from mpswatch.archive import Archive
from mpswatch.journal import Journal
from mpswatch.record import Record, archiving


@pytest.fixture
def rooms(tmp_path, latest):
    archive, journal = Archive(tmp_path), Journal(tmp_path)
    archive.prepare()
    failures = []
    record = Record(
        {"archive": archiving(archive, journal, latest), "latest": latest.record},
        latest=latest,
        on_failure=lambda sink, _fact, error: failures.append((sink, error)),
    )
    return archive, journal, record, failures


def test_each_kind_of_fact_goes_where_it_belongs(rooms, latest, facts):
    archive, journal, record, failures = rooms
    assert record(facts.poll()) == ()
    assert record(facts.sweep()) == ()
    assert record(facts.refusal()) == ()
    assert len(list(archive.entries())) == 1
    assert [event.kind for event in journal.read()] == ["sweep_refused"]
    view = latest.view()
    assert view.poll is not None
    assert view.archive.writes == 1
    assert view.archive.bytes == archive.usage() > 0
    assert view.archive.last_success_at is not None
    assert failures == []


def test_a_failing_archive_is_counted_and_the_view_gets_the_run_all_the_same(rooms, latest, facts):
    archive, _, record, failures = rooms
    archive.runs.rmdir()
    assert record(facts.sweep()) == ("archive",)
    view = latest.view()
    assert view.sink_failures == {"archive": 1}
    assert view.archive.failures == 1
    assert "cannot write" in view.archive.fault
    assert len(view.sweeps) == 1
    assert [sink for sink, _ in failures] == ["archive"]


def test_a_start_that_is_not_on_the_disk_is_said_so(rooms, facts, tmp_path):
    _, journal, record, _ = rooms
    journal.path.mkdir()
    assert record(facts.event("sweep_started", gpu_uuid=facts.GPU)) == ("archive",)


def test_any_exception_of_a_sink_is_contained(latest, facts):
    def broken(fact):
        raise RuntimeError("a fault of ours")

    seen = []
    record = Record({"broken": broken, "other": seen.append}, latest=latest)
    assert record(facts.poll()) == ("broken",)
    assert len(seen) == 1
    assert latest.view().sink_failures == {"broken": 1}
