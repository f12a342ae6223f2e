"""The keeper: facts are kept in order, a disk that hangs holds up nothing else, one that was full loses nothing."""

import threading
import time
from pathlib import Path

import pytest

from mpswatch.daemon.keeper import Keeper, KeepingError
from mpswatch.documents import SweepDocument, from_json

REFERENCE = Path(__file__).parents[1] / "reference" / "mps-cap-sweep.v1.json"


@pytest.fixture
def document():
    return from_json(REFERENCE.read_bytes(), SweepDocument)


class Disk:
    """What the keeper writes to: it can be full, and it can hang."""

    def __init__(self):
        self.kept = []
        self.full = False
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.failed = []

    def keep(self, fact):
        self.goes_on.wait(10)
        if self.full:
            raise OSError(28, "No space left on device")
        self.kept.append(fact)

    def keeper(self, deadline=5.0):
        return Keeper(self.keep, deadline=deadline, failed=lambda fact, _error: self.failed.append(fact))


def test_facts_are_kept_in_the_order_they_came(event):
    disk = Disk()
    keeper = disk.keeper()
    events = [event(details={"number": number}) for number in range(100)]
    for fact in events:
        keeper.take(fact)
    assert keeper.flush(5)
    assert disk.kept == events


def test_a_start_is_kept_when_the_call_returns_and_what_went_wrong_is_raised(event):
    disk = Disk()
    keeper = disk.keeper()
    keeper.take_and_wait(event("sweep_started"))
    assert len(disk.kept) == 1
    disk.full = True
    with pytest.raises(OSError, match="No space"):
        keeper.take_and_wait(event("sweep_started"))


def test_a_disk_that_hangs_is_late_and_holds_up_nobody(event):
    disk = Disk()
    disk.goes_on.clear()
    keeper = disk.keeper(deadline=0.1)
    began = time.monotonic()
    keeper.take(event())
    while keeper.flush(0.0):
        time.sleep(0.01)
    time.sleep(0.2)
    for _ in range(1000):
        keeper.take(event())
    with pytest.raises(KeepingError, match="wait"):
        keeper.take(event())
    assert not keeper.flush(0.05)
    assert keeper.late
    assert time.monotonic() - began < 5
    disk.goes_on.set()
    assert keeper.flush(5)
    assert not keeper.late
    assert len(disk.kept) == 1001


def test_a_start_waits_for_a_disk_that_hangs_no_longer_than_the_deadline(event):
    disk = Disk()
    disk.goes_on.clear()
    keeper = disk.keeper(deadline=0.1)
    with pytest.raises(KeepingError, match=r"0\.1 s"):
        keeper.take_and_wait(event("sweep_started"))
    disk.goes_on.set()


def test_a_run_that_a_full_disk_refused_is_written_when_there_is_room(document):
    disk = Disk()
    disk.full = True
    keeper = disk.keeper()
    keeper.take(document)
    keeper.flush(5)
    keeper.try_again()
    keeper.flush(5)
    assert disk.kept == []
    disk.full = False
    for _ in range(2):
        keeper.try_again()
        keeper.flush(5)
        assert disk.kept == [document]
