"""Who joined the daemon's list: by real processes, one of them pid 1 of a pid namespace of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpswatch.documents import Reason
from mpswatch.proc import Processes
from mpswatch.sweep.membership import Member, NotProven, clients_of, find, pauses, still

PROCESSES = Processes()


@pytest.fixture
def client() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def look_for(client, look, *, reported=None, before=(577, 578), server_pid=633, start_ticks=1000):
    return find(
        look,
        before=before,
        server_pid=server_pid,
        start_ticks=start_ticks,
        reported_pid=client.pid if reported is None else reported,
        processes=PROCESSES,
        is_ours=lambda facts: facts.session == client.pid,
    )


def test_the_client_that_joined_is_ours_by_its_session_and_the_pid_that_it_reports(build, client):
    found = look_for(client, build.daemon(build.server(clients=(577, 578, client.pid))))
    assert isinstance(found, Member)
    assert (found.pid, found.joined, found.namespaced) == (client.pid, (client.pid,), False)
    assert found.start_ticks == PROCESSES.start_ticks(client.pid)


def test_a_stranger_that_joins_in_the_same_moment_is_not_taken_for_ours(build, client):
    stranger = os.getpid()
    found = look_for(client, build.daemon(build.server(clients=(577, 578, stranger, client.pid))))
    assert isinstance(found, Member)
    assert found.pid == client.pid
    assert set(found.joined) == {stranger, client.pid}


def test_a_client_listed_twice_is_one_client(build, client):
    found = look_for(client, build.daemon(build.server(clients=(client.pid, client.pid))))
    assert isinstance(found, Member)
    assert found.joined == (client.pid,)


def test_a_stranger_alone_proves_nothing(build, client):
    found = look_for(client, build.daemon(build.server(clients=(os.getpid(),))))
    assert isinstance(found, NotProven)
    assert (found.reason, found.final) == (Reason.NOT_MANAGED, False)


def test_a_pid_that_cannot_be_seen_here_may_be_anybody(build, client):
    found = look_for(client, build.daemon(build.server(clients=(1 << 21,))))
    assert isinstance(found, NotProven)
    assert found.reason is Reason.IDENTITY_AMBIGUOUS


@pytest.mark.parametrize(("pid", "start_ticks"), [(634, 1000), (633, 999)])
def test_a_client_on_another_server_is_not_where_it_was_permitted(build, client, pid, start_ticks):
    look = build.daemon(build.server(pid=pid, start_ticks=start_ticks, clients=(client.pid,)))
    found = look_for(client, look)
    assert isinstance(found, NotProven)
    assert (found.reason, found.final) == (Reason.SERVER_CHANGED, True)


def test_where_our_cell_may_create_the_server_it_is_whichever_there_is_then(build, client):
    look = build.daemon(build.server(clients=(client.pid,)))
    assert isinstance(look_for(client, look, server_pid=None, start_ticks=None, before=()), Member)
    none_yet = look_for(client, build.daemon(), server_pid=None, start_ticks=None, before=())
    assert isinstance(none_yet, NotProven)
    assert (none_yet.reason, none_yet.final) == (Reason.NOT_MANAGED, False)


def test_a_daemon_that_does_not_answer_says_so_by_its_own_reason(build, client):
    silent = build.daemon(up=None, up_reason=Reason.DAEMON_SILENT, servers=build.unknown(Reason.DAEMON_SILENT))
    found = look_for(client, silent)
    assert isinstance(found, NotProven)
    assert (found.reason, found.joined, found.final) == (Reason.DAEMON_SILENT, None, False)


def test_a_member_stays_one_while_it_is_listed_and_the_same_process(build, client):
    listed = build.daemon(build.server(clients=(577, client.pid)))
    member = look_for(client, listed)
    assert still(listed, member, PROCESSES) is None
    assert still(build.daemon(build.server(clients=(577,))), member, PROCESSES).reason is Reason.NOT_MANAGED
    assert still(build.daemon(), member, PROCESSES).reason is Reason.SERVER_VANISHED
    client.kill()
    client.wait()
    assert still(listed, member, PROCESSES).reason is Reason.NOT_MANAGED


def test_the_list_is_known_only_where_every_server_said_its_own(build):
    assert clients_of(build.daemon(build.server(clients=(2, 1)), build.server(pid=7, clients=(3,)))) == (1, 2, 3)
    assert clients_of(build.daemon(build.server(clients=None))) is None
    assert clients_of(build.daemon(servers=build.unknown(Reason.DAEMON_ABSENT))) is None


def test_looks_grow_apart_so_that_they_stay_few():
    pause = pauses()
    waits = [pause() for _ in range(12)]
    assert waits == sorted(waits)
    assert sum(1 for _ in waits) == 12
    assert sum(waits) > 3.0


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_a_client_that_is_pid_1_in_a_namespace_of_its_own_is_found_by_its_pid_here(build):
    outer = subprocess.Popen(["unshare", "--pid", "--fork", "sleep", "60"], start_new_session=True)
    try:
        until, children = time.monotonic() + 5, Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
        while not (listed := children.read_text().split()):
            assert time.monotonic() < until
            time.sleep(0.01)
        inner = int(listed[0])
        found = look_for(outer, build.daemon(build.server(clients=(inner,))), reported=1)
        assert isinstance(found, Member)
        assert (found.pid, found.namespaced) == (inner, True)
    finally:
        subprocess.run(["kill", "-9", *listed], check=False)
        outer.kill()
        outer.wait()
