"""Interference documents beside the runs: filed by name, read back, bounded, and never taken for a run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import pytest

from mpswatch.archive import Archive, ArchiveError
from mpswatch.archive.interference import Interferences
from mpswatch.documents import InterferenceCell, InterferenceDocument, Reason

Document: TypeAlias = Callable[..., InterferenceDocument]

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.fixture
def document(facts: ModuleType) -> Document:
    """Make a document that began at some moment."""

    def make(at: datetime = NOON, **changes: Any) -> InterferenceDocument:
        told = {"host": "node7", "run_id": f"{at:%H%M%S}-ab12", "started_at": at}
        return facts.interference(at, **{**told, **changes})

    return make


@pytest.mark.parametrize("gzip", [False, True])
def test_what_is_written_is_read_back(tmp_path: Path, gzip: bool, document: Document) -> None:
    kept = Interferences(tmp_path, gzip=gzip)
    path = kept.write(document())
    assert path.parent.name == "interference"
    assert path.name.startswith("node7_GPU-4a1bc0de_20261130T120000Z_")
    assert kept.read(path) == document()
    assert kept.names() == [path.name]


def test_no_reader_of_runs_meets_one(tmp_path: Path, document: Document) -> None:
    Interferences(tmp_path).write(document())
    archive = Archive(tmp_path)
    archive.prepare()
    assert list(archive.entries()) == []
    assert archive.latest() == ((), ())
    assert archive.foreign() == ()


def test_the_newest_of_each_host_and_gpu_is_given(tmp_path: Path, document: Document) -> None:
    kept = Interferences(tmp_path)
    for minutes in (0, 10, 5):
        kept.write(document(NOON + timedelta(minutes=minutes)))
    kept.write(document(host="node8"))
    found, faults = kept.latest()
    assert faults == ()
    assert {(one.host, one.started_at) for one in found} == {("node7", NOON + timedelta(minutes=10)), ("node8", NOON)}


def test_one_that_cannot_be_read_is_named_and_the_one_before_it_given(tmp_path: Path, document: Document) -> None:
    kept = Interferences(tmp_path)
    kept.write(document())
    kept.write(document(NOON + timedelta(hours=1))).write_bytes(b"{")
    found, (fault,) = kept.latest()
    assert [one.started_at for one in found] == [NOON]
    assert "130000" in fault.detail


def test_a_simulated_one_does_not_go_beside_measured_ones(tmp_path: Path, document: Document) -> None:
    with pytest.raises(ArchiveError) as refused:
        Interferences(tmp_path).write(document(simulated=True))
    assert refused.value.reason is Reason.REHEARSAL_STACK
    assert Interferences(tmp_path).latest() == ((), ())


def test_the_old_and_the_many_go_and_the_newest_stays(tmp_path: Path, document: Document) -> None:
    kept = Interferences(tmp_path, keep_age=timedelta(days=1))
    for days in range(4):
        kept.write(document(NOON + timedelta(days=days)))
    assert len(kept.names()) == 2
    few = Interferences(tmp_path / "few", most=3)
    for hours in range(5):
        few.write(document(NOON + timedelta(hours=hours)))
    assert [name.split("_")[2] for name in few.names()] == [f"20261130T{hour}0000Z" for hour in (16, 15, 14)]


def test_an_archive_without_any_has_none(tmp_path: Path) -> None:
    assert Interferences(tmp_path).latest() == ((), ())


def test_a_document_cannot_contradict_itself(document: Document) -> None:
    with pytest.raises(ValueError, match="simulated"):
        document(simulated=True, solo=(document().solo[0],))
    with pytest.raises(ValueError, match="does not go with victim"):
        InterferenceCell(
            order=1, victim_cap="25", victim_kind="matmul", aggressor_cap=None, aggressor_kind=None, state="measured"
        )
