"""Workers, holds, pauses, what was said already, and what systemd hears."""

import asyncio
import os
import socket
import threading
import zoneinfo
from datetime import UTC, datetime, time

import pytest

from mpswatch.config import load
from mpswatch.config.shape import SweepSection
from mpswatch.daemon.hold import hold
from mpswatch.daemon.pause import PauseError, is_paused, pause, resume
from mpswatch.daemon.reload import keep_what_needs_a_restart
from mpswatch.daemon.said import Said
from mpswatch.daemon.systemd import Notifier
from mpswatch.daemon.worker import Worker
from mpswatch.documents import Reason

NIGHT = ((time(22), time(6)),)


def at(hour, minute=0):
    return datetime(2026, 11, 30, hour, minute, tzinfo=UTC)


# --- the worker


def test_a_worker_does_one_thing_at_a_time_and_hands_its_outcome_back_in_the_loop(in_loop, eventually):
    async def scenario():
        worker, done, goes_on = Worker("test", asyncio.get_running_loop()), [], threading.Event()

        def job():
            goes_on.wait(5)
            return threading.current_thread().name

        assert worker.offer(job, lambda result: done.append((result, threading.current_thread().name)), done.append)
        assert worker.busy_seconds is not None
        assert not worker.offer(job, done.append, done.append)
        goes_on.set()
        await eventually(lambda: done)
        assert done == [("test", "MainThread")]
        assert worker.busy_seconds is None
        assert worker.offer(lambda: 1 // 0, done.append, lambda error: done.append(type(error)))
        await eventually(lambda: len(done) == 2)
        assert done[1] is ZeroDivisionError
        assert worker.offer(lambda: "goes on", done.append, done.append)
        await eventually(lambda: done[-1] == "goes on")

    in_loop(scenario)


# --- what holds a sweep


def test_nothing_holds_a_sweep_by_default():
    assert hold(SweepSection(), paused=False, asked_for=False, now=at(12)) is None


def test_a_pause_holds_every_sweep():
    for asked_for in (False, True):
        assert hold(SweepSection(), paused=True, asked_for=asked_for, now=at(12)).reason is Reason.PAUSED


def test_a_schedule_that_is_off_holds_only_what_nobody_asked_for():
    off = SweepSection(enabled=False)
    assert hold(off, paused=False, asked_for=False, now=at(12)).reason is Reason.DISABLED
    assert hold(off, paused=False, asked_for=True, now=at(12)) is None


@pytest.mark.parametrize(
    ("moment", "seconds"),
    [(at(22), 8 * 3600), (at(23, 59), 6 * 3600 + 60), (at(5, 59), 60), (at(6), None), (at(12), None)],
)
def test_quiet_hours_run_over_midnight_and_say_when_they_end(moment, seconds):
    held = hold(SweepSection(quiet_hours=NIGHT), paused=False, asked_for=False, now=moment)
    assert (held.seconds if held is not None else None) == seconds


def test_quiet_hours_are_in_the_zone_that_was_named():
    berlin = SweepSection(quiet_hours=NIGHT, time_zone="Europe/Berlin")
    assert hold(berlin, paused=False, asked_for=False, now=at(21)).reason is Reason.QUIET_HOURS
    assert hold(berlin, paused=False, asked_for=False, now=at(5)) is None


def test_utc_needs_no_file_of_time_zones(monkeypatch):
    """Small images have none: there the default would stop the start."""

    def none_here(name):
        raise zoneinfo.ZoneInfoNotFoundError(name)

    monkeypatch.setattr(zoneinfo, "ZoneInfo", none_here)
    assert load().sweep.time_zone == "UTC"
    assert hold(SweepSection(quiet_hours=NIGHT), paused=False, asked_for=False, now=at(23)).reason is Reason.QUIET_HOURS


# --- pause


def test_a_pause_lasts_until_it_is_lifted(tmp_path):
    assert not is_paused(tmp_path)
    assert pause(tmp_path, "me")
    assert not pause(tmp_path, "you")
    assert is_paused(tmp_path)
    assert "by me" in (tmp_path / "paused").read_text()
    assert resume(tmp_path)
    assert not resume(tmp_path)
    assert not is_paused(tmp_path)


def test_a_pause_that_cannot_be_written_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PauseError) as caught:
        pause(tmp_path / "file", "me")
    assert "--archive" in caught.value.remedy
    assert not is_paused(tmp_path / "file")


# --- said, reload


def test_a_line_for_each_change_and_not_for_each_repeat():
    said = Said()
    found = [said.is_new("mps", what) for what in (None, "silent", "silent", "absent", None, None, "silent")]
    assert found == [False, True, False, True, True, False, True]


def test_a_reload_takes_what_it_may_and_names_what_it_may_not():
    running = load()
    wanted = load(None, {"poll.interval": "20s", "web.listen_address": ":1", "archive.gzip": True})
    kept, left = keep_what_needs_a_restart(running, wanted)
    assert left == ("archive", "web")
    assert kept.poll.interval == 20
    assert (kept.web, kept.archive) == (running.web, running.archive)


# --- systemd


@pytest.fixture
def heard(tmp_path):
    """A service manager's socket, and what it heard."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "n"))
        listener.settimeout(2)
        yield str(tmp_path / "n"), lambda: listener.recv(4096).decode()


def test_systemd_is_told_on_its_socket_and_the_address_leaves_the_environment(heard):
    address, hear = heard
    environ = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid()), "HOME": "/"}
    notifier = Notifier.from_environment(environ)
    assert environ == {"HOME": "/"}
    assert notifier.watchdog == 30
    notifier.ready("two\nlines")
    assert hear() == "READY=1\nSTATUS=two lines"
    notifier.reloading()
    assert hear().startswith("RELOADING=1\nMONOTONIC_USEC=")
    notifier.alive()
    assert hear() == "WATCHDOG=1"
    notifier.extend(1.5)
    assert hear() == "EXTEND_TIMEOUT_USEC=1500000"
    notifier.stopping("now")
    assert hear() == "STOPPING=1\nSTATUS=now"
    notifier.close()


def test_an_abstract_address_is_one_too():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0mpswatch-test-{os.getpid()}")
        listener.settimeout(2)
        notifier = Notifier(f"@mpswatch-test-{os.getpid()}")
        notifier.alive()
        assert listener.recv(100) == b"WATCHDOG=1"
        notifier.close()


def test_a_manager_that_is_away_or_does_not_read_holds_nothing_up(tmp_path, heard):
    away, unread = Notifier(str(tmp_path / "nobody")), Notifier(heard[0])
    away.alive()
    for _ in range(10000):  # more than any queue takes
        unread.alive()
    away.close()
    unread.close()


def test_the_watchdog_of_another_process_is_not_ours():
    assert Notifier.from_environment({"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}).watchdog is None
    assert Notifier.from_environment({"WATCHDOG_USEC": "nonsense"}).watchdog is None
    assert Notifier.from_environment({}).watchdog is None


def test_the_pause_is_readable_by_whom_the_archive_is(tmp_path):
    before = os.umask(0o022)
    try:
        pause(tmp_path, "ann")
    finally:
        os.umask(before)
    assert (tmp_path / "paused").stat().st_mode & 0o777 == 0o640
