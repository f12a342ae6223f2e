"""Who waits for the server to be shut down, by control.log (recordings: wrong-uid-client)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mpswatch.documents import Reason, Waiting, WaitingClient
from mpswatch.mps.control_log import ControlLog, ControlLogError

RECORDED = Path(__file__).parents[1] / "recordings/h200-580-20261130/wrong-uid-client.txt"
STAMP = "[2026-11-30 16:22:32.941 Control   448] "
QUEUED = "NEW CLIENT {} from user {}: Server is not ready, push client to pending list"
ARMED = "Control will try shutting down server {} again in at most 3200ms"


@pytest.fixture
def log(tmp_path):
    return ControlLog(tmp_path)


@pytest.fixture
def write(log):
    def write(*lines):
        with log.path.open("a") as file:
            file.writelines(f"{STAMP}{line}\n" for line in lines)

    return write


def look(log, server=633, uid=0, multi_user=False):
    return log.look(server=server, server_uid=uid, multi_user=multi_user)


def test_the_recorded_log_says_that_the_server_is_to_be_shut_down(log):
    lines = [line for line in RECORDED.read_text().splitlines() if line.startswith("[")]
    log.path.write_text("\n".join(lines) + "\n")
    assert look(log).shutdown_armed
    assert not look(log, server=634).shutdown_armed


def test_a_client_of_another_uid_waits_and_one_of_the_same_does_not(log, write):
    write(QUEUED.format(1733, 65534), QUEUED.format(1734, 0))
    assert look(log) == Waiting(clients=(WaitingClient(pid=1733, uid=65534),))


def test_with_another_server_whoever_waited_is_admitted(log, write):
    write(QUEUED.format(1733, 65534), ARMED.format(633))
    assert look(log).shutdown_armed
    write("Starting new server 700 for user 65534", "NEW SERVER 700: Ready")
    assert look(log, server=700, uid=65534) == Waiting()


def test_a_multi_user_server_and_none_at_all_are_waited_for_by_nobody(log, write):
    write(QUEUED.format(1733, 65534))
    assert look(log, multi_user=True) == Waiting()
    assert look(log, server=None, uid=None) == Waiting()


def test_a_client_that_the_daemon_cannot_see_waits_without_a_pid(log, write):
    write(QUEUED.format(0, 1000))
    assert look(log).clients == (WaitingClient(pid=0, uid=1000),)


def test_a_line_is_read_once_it_is_whole(log, write):
    write("Accepting connection...")
    look(log)
    with log.path.open("a") as file:
        file.write(STAMP + QUEUED.format(1733, 65534)[:30])
    assert look(log) == Waiting()
    with log.path.open("a") as file:
        file.write(QUEUED.format(1733, 65534)[30:] + "\n")
    assert len(look(log).clients) == 1


def test_rotation_by_name_and_in_place_lose_nothing_that_comes_later(log, write):
    write(*["Accepting connection..."] * 50)
    look(log)
    os.truncate(log.path, 0)
    write(QUEUED.format(1, 5))
    assert len(look(log).clients) == 1
    log.path.rename(log.path.with_suffix(".1"))
    with pytest.raises(ControlLogError):
        look(log)
    write(QUEUED.format(2, 6))
    assert len(look(log).clients) == 2


def test_of_a_huge_log_the_end_is_read(log, write):
    log.path.write_text(("x" * 99 + "\n") * 50_000)
    write(ARMED.format(633))
    assert look(log).shutdown_armed


def test_a_log_that_cannot_be_read_says_why(log, tmp_path):
    with pytest.raises(ControlLogError) as missing:
        look(log)
    assert missing.value.reason is Reason.NOT_RECORDED
    os.mkfifo(log.path)
    with pytest.raises(ControlLogError):
        look(log)


@pytest.mark.parametrize(
    "line", [b"", b"\xff\xfe[", b"NEW CLIENT x from user y: pending", b"[] NEW CLIENT", b"\0" * 99]
)
def test_nonsense_in_it_is_nothing(line, log):
    log.path.write_bytes(line + b"\n")
    assert look(log) == Waiting()


def test_the_whole_story_as_an_h200_wrote_it(log):
    recorded = Path(__file__).parents[1] / "recordings/h200-580/identity/control-waiting.txt"
    lines = recorded.read_bytes().splitlines(keepends=True)
    queued = next(number for number, line in enumerate(lines) if b"NEW CLIENT 989" in line)
    replaced = next(number for number, line in enumerate(lines) if b"Starting new server 1069" in line)
    log.path.write_bytes(b"".join(lines[:queued]))
    assert look(log, server=968) == Waiting()
    log.path.write_bytes(b"".join(lines[: queued + 1]))
    assert look(log, server=968).clients == (WaitingClient(pid=989, uid=65534),)
    log.path.write_bytes(b"".join(lines[:replaced]))
    assert look(log, server=968).shutdown_armed
    log.path.write_bytes(b"".join(lines))
    assert look(log, server=1069, uid=65534) == Waiting()


def test_a_multi_user_daemon_serves_three_users_and_nobody_waits(log):
    recorded = Path(__file__).parents[1] / "recordings/h200-580/identity/control-multi-user.txt"
    log.path.write_bytes(recorded.read_bytes())
    assert look(log, server=1029, multi_user=True) == Waiting()
