"""Thorough sweeps and interference on their own schedules: off by default, after the quick sweep, no crash loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from mpswatch.config import Config
from mpswatch.config.shape import ArchiveSection, DaemonEntry, InterferenceSection, SweepSection, ThoroughSection
from mpswatch.daemon.own_schedules import AFTER_START, OwnSchedules, intervals
from mpswatch.daemon.restore import Restored
from mpswatch.daemon.schedule import Schedule
from mpswatch.documents import Event

DAY = 86400.0


def config(*, thorough: float | None = None, interference: float | None = None) -> Config:
    return Config(
        host="here",
        daemons=(DaemonEntry(pipe_directory="/tmp/nvidia-mps"),),
        archive=ArchiveSection(directory="/tmp/none"),
        sweep=SweepSection(thorough=ThoroughSection(interval=thorough)),
        interference=InterferenceSection(interval=interference),
    )


def started(plan: str, ago: float) -> Event:
    at = datetime.now(UTC) - timedelta(seconds=ago)
    return Event(kind="sweep_started", at=at, host="here", message="starts", plan=plan)


@pytest.fixture
def schedule() -> Iterator[Schedule]:
    """A schedule in a loop of its own, which never turns: nothing is triggered."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)

    async def make() -> Schedule:
        made = Schedule(**dict.fromkeys(("thorough", "interference"), lambda: None))
        made.start()
        return made

    schedule = loop.run_until_complete(make())
    yield schedule
    schedule.stop()
    asyncio.set_event_loop(None)
    loop.close()


def due(schedule: Schedule, settings: Config, restored: Restored) -> dict[str, float | None]:
    OwnSchedules(schedule, dict).arrange(settings, restored)
    return {plan: schedule.due_in(plan) for plan in ("thorough", "interference")}


def test_both_are_off_by_default(schedule: Schedule) -> None:
    assert intervals(config()) == {}
    assert due(schedule, config(), Restored(known=True)) == {"thorough": None, "interference": None}


def test_the_first_one_comes_after_the_quick_sweep(schedule: Schedule) -> None:
    found = due(schedule, config(thorough=DAY, interference=7 * DAY), Restored(known=True))
    assert found["thorough"] == pytest.approx(AFTER_START, abs=2)
    assert found["interference"] == pytest.approx(AFTER_START, abs=2)


def test_a_start_that_an_earlier_process_made_counts_for_its_own_plan_alone(schedule: Schedule) -> None:
    earlier = Restored(known=True, events=(started("thorough", 3600), started("quick", 60)))
    found = due(schedule, config(thorough=DAY, interference=DAY), earlier)
    assert found["thorough"] == pytest.approx(DAY - 3600, abs=5)
    assert found["interference"] == pytest.approx(AFTER_START, abs=2)


def test_where_nothing_is_known_of_earlier_starts_a_whole_interval_is_waited(schedule: Schedule) -> None:
    assert due(schedule, config(thorough=DAY), Restored(known=False))["thorough"] == pytest.approx(DAY, abs=5)


def test_what_is_scheduled_stays_as_it_is_until_it_is_taken_off(schedule: Schedule) -> None:
    own = OwnSchedules(schedule, dict)
    own.arrange(config(thorough=DAY), Restored(known=False))
    before = schedule.due_in("thorough")
    own.arrange(config(thorough=DAY), Restored(known=True))
    assert schedule.due_in("thorough") == pytest.approx(before, abs=1)
    own.off()
    assert schedule.due_in("thorough") is None
