"""Clients that attach: SM counts, limits, users, and what ending with work in flight does to a neighbour."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mpswatch.rehearsal import Stack

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="changing uid needs root")


def clients_of(stack):
    return stack.status()["daemons"]["default"]["server"]["clients"]


def recorded_caps(recordings):
    """Cap and SM count of every client in the recordings."""
    found = {}
    for name in ("sweep-alone.txt", "bad-caps.txt", "sweep-beside-tenants.txt"):
        for line in (recordings / name).read_text().splitlines():
            if line.startswith("{"):
                client = json.loads(line)
                found[client["cap"]] = client["sms"]
    return found


def test_a_cap_gives_the_recorded_number_of_sms(stack, recordings):
    caps = {**recorded_caps(recordings), "80": 104}
    assert len(caps) > 10
    for cap, sms in caps.items():
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(stack.pipe_directory / "rehearsal"))
            client.sendall(json.dumps({"attach": {"cap": cap}}).encode() + b"\n")
            attached = json.loads(client.recv(4096))["attached"]
        assert (attached["sm_count"], attached["sm_total"]) == (sms, 132), cap
        assert attached["share"] == pytest.approx(sms / 132)


def test_a_client_is_listed_before_it_is_told_so_and_not_after_it_left(stack, attach, ask, eventually):
    client = attach("50")
    assert client.reply()["attached"]["sm_count"] == 66
    assert ask(f"get_client_list {stack.server_pid}").stdout == f"{client.pid}\n"
    client.leave()
    eventually(lambda: ask(f"get_client_list {stack.server_pid}").stdout == "")


def test_a_client_that_leaves_drained_harms_nobody(stack, attach, eventually, exists):
    service = stack.add_service("llm")
    client = attach("50", says="+-++--")
    client.reply()
    eventually(lambda: clients_of(stack)[-1]["pieces"] == 3)
    client.vanish()
    eventually(lambda: len(clients_of(stack)) == 1)
    assert (stack.unsafe_ends(), stack.harmed_neighbours()) == ([], [])
    assert exists(service)


def test_a_client_that_vanishes_with_work_in_flight_takes_a_busy_neighbour_down(stack, attach, eventually, exists):
    idle, busy = stack.add_service("idle", busy=False), stack.add_service("llm")
    client = attach("50", says="+-+")
    client.reply()
    eventually(lambda: clients_of(stack)[-1]["in_flight"] == 1)
    client.vanish()
    eventually(lambda: not exists(busy))
    assert exists(idle)
    assert stack.harmed_neighbours() == [busy]
    assert [end["by"] for end in stack.unsafe_ends()] == [client.pid]
    log = (stack.log_directory / "server.log").read_text()
    assert f"Client {{PID: {busy}, Context: 1}} encountered a fatal GPU error" in log
    assert re.search(r"^\[[\d :.-]+ Server +\d+\] Client \{PID", log, re.MULTILINE)


def test_the_server_is_active_again_within_half_a_second(stack, ask, eventually):
    stack.add_service("llm")
    assert stack.tell("break")["neighbour"]
    eventually(lambda: ask(f"get_server_status {stack.server_pid}").stdout == "ACTIVE\n", seconds=0.8)


def test_an_unsafe_end_counts_though_nobody_was_there_to_die(stack, attach, eventually):
    client = attach("50", says="+")
    client.reply()
    client.vanish()
    eventually(stack.unsafe_ends)
    assert stack.harmed_neighbours() == []


def test_the_49th_client_is_refused_with_808(stack, attach):
    stack.add_service("llm")
    assert len(stack.tell("fill", leave=1)["pids"]) == 46
    assert "attached" in attach("50").reply()
    assert attach("50").reply()["refused"]["code"] == 808
    assert len(clients_of(stack)) == 48
    stack.tell("drain")
    assert "attached" in attach("50").reply()


def test_the_stack_never_signals_a_client_that_attached(stack_directory):
    script = "import socket,sys,time; c=socket.socket(socket.AF_UNIX); c.connect(sys.argv[1]); "
    script += "c.sendall(b'{\"attach\":{}}\\n'); print(c.recv(99)); sys.stdout.flush(); c.recv(9); time.sleep(60)"
    with Stack(stack_directory) as stack:
        stack.add_service("llm")
        argv = [sys.executable, "-c", script, stack.pipe_directory / "rehearsal"]
        client = subprocess.Popen(argv, stdout=subprocess.PIPE)
        assert b"attached" in client.stdout.readline()
        stack.tell("break")
        stack.tell("replace_server")
        stack.tell("restart")
    try:
        assert client.poll() is None
    finally:
        client.kill()
        client.wait()
        client.stdout.close()


@needs_root
def test_the_server_runs_as_the_uid_of_its_first_client(stack, attach):
    assert attach("50", uid=1001).reply()["attached"]
    assert "Uid:\t1001\t1001" in Path(f"/proc/{stack.server_pid}/status").read_text()


@needs_root
def test_a_client_of_another_uid_is_queued_and_the_log_counts_the_tries(stack, attach, ask, eventually):
    stack.add_service("llm")
    server = stack.server_pid
    client = attach("50", uid=1001)
    log = stack.log_directory / "control.log"
    eventually(lambda: f"Control will try shutting down server {server} again in at most 800ms" in log.read_text())
    assert client.reply(0.1) is None
    assert ask(f"get_server_status {server}").stdout == "ACTIVE\n"
    assert f"Server {server} has 2 active worker threads. Server will not shutdown." in log.read_text()


@needs_root
def test_the_armed_change_fires_at_the_first_idle_moment(stack, attach, eventually):
    service = stack.add_service("llm")
    client = attach("50", uid=1001)
    stack.remove(service)
    assert client.reply()["attached"]["sm_count"] == 66
    assert clients_of(stack)[0]["uid"] == 1001


@needs_root
def test_it_fires_for_a_dead_client_too_and_then_the_right_ones_hang(stack, attach, eventually):
    service = stack.add_service("llm")
    before = stack.server_pid
    client = attach("50", uid=1001)
    client.vanish()
    stack.remove(service)
    eventually(lambda: stack.server_pid not in {before, None})
    assert attach("50", uid=0).reply(0.4) is None


@needs_root
def test_a_multi_user_server_serves_every_uid_as_root(stack, attach):
    stack.tell("restart", multi_user=True)
    assert "attached" in attach("50", uid=1001).reply()
    assert "attached" in attach("50", uid=0).reply()
    arguments = Path(f"/proc/{stack.server_pid}/cmdline").read_text()
    assert arguments == "nvidia-cuda-mps-server\0-multiuser-server\0"


@pytest.mark.parametrize(
    ("how", "listed"), [("unlisted", 0), ("twice", 2), ("other_pid", 1), ("", 1)], ids=["none", "twice", "other", "one"]
)
def test_who_is_listed_can_be_told(stack, attach, ask, how, listed):
    stack.tell("attach", how=how, pid=1)
    client = attach("50")
    assert "attached" in client.reply()
    pids = ask(f"get_client_list {stack.server_pid}").stdout.split()
    assert pids == ["1"] if how == "other_pid" else pids == [str(client.pid)] * listed


def test_a_late_client_is_listed_late(stack, attach, ask):
    stack.add_service("llm")
    stack.tell("attach", how="late", seconds=0.4)
    client = attach("50")
    assert client.reply(0.2) is None
    assert str(client.pid) not in ask(f"get_client_list {stack.server_pid}").stdout
    assert "attached" in client.reply()


@pytest.mark.parametrize(("how", "reply"), [("close", b"hung up\n"), ("nonsense", b'{"attached": "'), ("silent", b"")])
def test_a_client_can_be_received_badly(stack, attach, eventually, how, reply):
    stack.tell("attach", how=how)
    client = attach("50")
    if reply:
        assert eventually(client.process.stdout.read).startswith(reply)
    else:
        assert client.reply(0.3) is None


def test_kernels_can_be_slow(stack, attach):
    stack.tell("slow", factor=10)
    assert attach("50").reply()["attached"]["share"] == pytest.approx(0.05)
