"""The daemon judges each run, and the journal has a line where a standing begins and where it ends: across restarts."""

from __future__ import annotations

import asyncio
import importlib.util
from datetime import timedelta
from pathlib import Path

import pytest

from mpswatch import logs
from mpswatch.archive import Archive
from mpswatch.daemon.judging import Judging
from mpswatch.daemon.worker import Worker
from mpswatch.documents import Event
from mpswatch.journal import Journal

_spec = importlib.util.spec_from_file_location("judging_facts", Path(__file__).parents[1] / "latest/facts.py")
facts = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(facts)


@pytest.fixture
def archive(tmp_path):
    made = Archive(tmp_path)
    made.prepare()
    return made


def run_of(hour, tflops):
    at = facts.NOON + timedelta(hours=hour)
    cells = tuple(facts.cell(cap, at, tflops=tflops if cap == "50" else facts.CURVE[cap][1]) for cap in facts.CURVE)
    return facts.sweep(at, run_id=f"run-{hour}", cells=cells)


def lives(archive, eventually, *handed):
    """One life of the daemon that is handed runs, some at a time: the ids of those that it judged."""
    journal, looks = Journal(archive.directory), []

    def record(fact):
        if isinstance(fact, Event):
            journal.append(fact)
        else:
            looks.append(fact.run_id)

    async def live():
        judging = Judging(
            archive=lambda: archive,
            journal=lambda: journal,
            worker=Worker("history", asyncio.get_running_loop()),
            record=record,
            log=logs.get_logger(),
        )
        for number, runs in enumerate(handed, start=1):
            judging.judge(runs)
            await eventually(lambda number=number: len(looks) == number)

    asyncio.run(live())
    return looks


def said(archive):
    return [(event.kind, event.run_id) for event in Journal(archive.directory).read()]


@pytest.fixture
def slow(archive):
    """Twelve runs as usual, then three that are slower."""
    runs = [run_of(hour, 436.0 if hour < 12 else 300.0) for hour in range(15)]
    for run in runs:
        archive.write(run)
    return runs


def test_it_is_said_when_it_begins_and_not_again_by_the_next_life(archive, slow, eventually):
    lives(archive, eventually, slow[11:12], slow[12:13], slow[13:14])
    assert said(archive) == [("standing_began", "run-13")]
    lives(archive, eventually, slow[13:14], slow[14:15])
    assert said(archive) == [("standing_began", "run-13")]


def test_the_end_is_said_by_whichever_life_sees_it(archive, slow, eventually):
    lives(archive, eventually, slow[14:])
    mended = run_of(15, 436.0)
    archive.write(mended)
    lives(archive, eventually, [mended])
    assert said(archive) == [("standing_began", "run-14"), ("standing_ended", "run-15")]


def test_of_several_runs_at_once_the_newest_is_judged_and_an_older_one_turns_nothing_back(archive, slow, eventually):
    assert lives(archive, eventually, [slow[14], slow[13], slow[3]], [slow[5]]) == ["run-14", "run-5"]
    assert said(archive) == [("standing_began", "run-14")]


def test_a_journal_that_cannot_be_read_costs_the_event_and_not_the_history(archive, slow, eventually):
    (archive.directory / "journal.jsonl").symlink_to("nowhere")  # links are not followed
    assert lives(archive, eventually, slow[14:]) == ["run-14"]
