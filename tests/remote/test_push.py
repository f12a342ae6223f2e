"""Copying to a target that misbehaves: an fsspec file system in memory, with faults switched on."""

from __future__ import annotations

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from mpswatch.remote import push as push_module
from mpswatch.remote.push import ATTEMPTS, GIVE_UP_AFTER, push
from mpswatch.remote.target import PARTIAL, Target, UnusableTarget, shown


class FaultyFileSystem(MemoryFileSystem):
    """Memory that fails as told: `refuse` puts and listings in a row, or cut the next `cut` files short."""

    protocol = "faulty"
    store: dict = {}  # noqa: RUF012 - as its base has it: one store for all instances
    pseudo_dirs = [""]  # noqa: RUF012 - as its base has it
    cachable = False
    refuse = 0
    cut = 0
    puts = 0

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.removeprefix("faulty://"))

    def ls(self, path, detail=True, **_):
        self._perhaps_refuse()
        return super().ls(path, detail=detail)

    def put_file(self, lpath, rpath, **_):
        FaultyFileSystem.puts += 1
        self._perhaps_refuse()
        with open(lpath, "rb") as file:
            data = file.read()
        if FaultyFileSystem.cut:
            FaultyFileSystem.cut -= 1
            data = data[:-1]
        self.pipe_file(rpath, data)

    def _perhaps_refuse(self):
        if FaultyFileSystem.refuse:
            FaultyFileSystem.refuse -= 1
            raise ConnectionError("try again later")


@pytest.fixture
def faulty():
    fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)
    FaultyFileSystem.refuse = FaultyFileSystem.cut = FaultyFileSystem.puts = 0
    FaultyFileSystem.store.clear()
    return FaultyFileSystem


@pytest.fixture
def target(faulty):
    return Target("faulty://fleet")


@pytest.fixture
def run(archive, target):
    def once(deadline: float = 60.0):
        return push(archive.entries(), target, deadline=deadline, pause=no_pause)

    return once


def no_pause(seconds: float) -> None:
    pass


def names(faulty) -> list[str]:
    return sorted(faulty.store)


def test_a_refusal_is_tried_again(write, run, faulty):
    write()
    faulty.refuse = ATTEMPTS - 1
    report = run()
    assert (report.copied, report.missing, report.error) == (1, 0, None)


def test_pauses_grow_and_are_varied(write, archive, target, faulty):
    write()
    faulty.refuse = ATTEMPTS - 1
    pauses: list[float] = []
    push(archive.entries(), target, deadline=60, pause=pauses.append)
    first = push_module.FIRST_PAUSE
    assert len(pauses) == 2
    assert first * 0.5 <= pauses[0] <= first * 1.5
    assert first * 1.0 <= pauses[1] <= first * 3.0


def test_a_target_that_is_down_is_left_alone_after_a_few_files(write, run, faulty):
    for hour in range(10):
        write(hour)
    faulty.refuse = 10_000
    report = run()
    assert (report.runs, report.missing) == (10, 10)
    assert "ConnectionError: try again later" in report.error
    assert faulty.refuse == 10_000 - ATTEMPTS * GIVE_UP_AFTER


def test_what_was_missing_is_caught_up_with_oldest_first(write, run, faulty):
    paths = [write(hour) for hour in range(4)]
    faulty.refuse = 10_000
    assert run().missing == 4
    faulty.refuse = 0
    report = run()
    assert (report.copied, report.missing) == (4, 0)
    assert [name.rsplit("/")[-1] for name in faulty.store] == [path.name for path in paths]


def test_a_file_that_arrived_cut_short_is_sent_again_under_its_name_it_never_lay_cut(write, run, faulty):
    path = write()
    faulty.cut = 1
    report = run()
    assert report.copied == 1
    assert names(faulty) == [f"/fleet/runs/gpu-07/2026-11/{path.name}"]
    assert faulty.store[names(faulty)[0]].getvalue() == path.read_bytes()


def test_what_another_call_left_half_sent_is_no_run(write, run, faulty):
    path = write()
    faulty().pipe_file(f"/fleet/runs/gpu-07/2026-11/{path.name}{PARTIAL}", b"{")
    assert run().copied == 1


def test_a_run_of_another_size_there_is_replaced(write, run, faulty):
    path = write()
    run()
    faulty().pipe_file(f"/fleet/runs/gpu-07/2026-11/{path.name}", b"{}")
    assert run().copied == 1
    assert faulty.store[names(faulty)[0]].getvalue() == path.read_bytes()


def test_nothing_starts_after_the_deadline(write, archive, target, faulty):
    for hour in range(5):
        write(hour)
    now = iter(range(100))
    report = push(archive.entries(), target, deadline=4, clock=lambda: float(next(now)), pause=no_pause)
    assert 0 < report.copied < 5
    assert report.missing == 5 - report.copied
    assert report.error == "not done within 4 s"
    assert faulty.puts == report.copied


def test_a_run_that_retention_removes_meanwhile_is_not_missing(write, archive, target):
    gone = write(0)
    write(1)
    entries = list(archive.entries())
    gone.unlink()
    report = push(entries, target, deadline=60)
    assert (report.runs, report.copied, report.missing, report.error) == (1, 1, 0, None)


def test_each_month_is_looked_at_once(write, archive, target, faulty, monkeypatch):
    looked: list[str] = []
    sizes = target.sizes
    monkeypatch.setattr(target, "sizes", lambda folder: looked.append(folder) or sizes(folder))
    for hour in (0, 1, 2, 24 * 40):
        write(hour)
    push(archive.entries(), target, deadline=60)
    assert looked == ["runs/gpu-07/2026-11", "runs/gpu-07/2027-01"]


def test_a_password_in_a_url_is_not_shown():
    assert shown("ftp://me:secret@files.example/runs") == "ftp://files.example/runs"
    assert shown("s3://bucket/path") == "s3://bucket/path"


def test_a_protocol_that_nobody_knows_is_named():
    with pytest.raises(UnusableTarget, match="nonsense"):
        Target("nonsense://bucket")
