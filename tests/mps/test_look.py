"""Looks at a control daemon that is a real process, honest and otherwise."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mpswatch import mps
from mpswatch.documents import DaemonLook, Reason, from_json, to_json
from mpswatch.mps.asking import look as asking_look
from mpswatch.proc import Processes

ROW = "577       2         633            GPU-d5186d3a-2601-5eeb    4026531836     /srv/app/.venv/bin/python3"
STACK = {"servers": {"633": {"clients": [578, 577]}}, "ps": [ROW]}


def test_a_known_server_is_asked_about_on_one_connection(daemon):
    daemon.tree.server(633, uid=1001, ticks=40_000)
    daemon.play(STACK)
    look, source = daemon.look(known=[633])
    assert daemon.asked() == [
        [
            "get_server_list",
            "get_default_active_thread_percentage",
            "get_client_list 633",
            "get_server_status 633",
            "ps",
        ]
    ]
    assert (look.up, look.up_reason, look.protocol) == (True, None, "2")
    assert look.default_active_thread_percentage == 100.0
    assert look.servers.state == "measured"
    assert look.servers.evidence["connections"] == 1
    (server,) = look.servers.value
    assert server.clients == (577, 578)
    assert (server.pid, server.start_ticks, server.uid, server.multi_user) == (633, 40_000, 1001, False)
    assert server.age_seconds == pytest.approx(1000 - 40_000 / os.sysconf("SC_CLK_TCK"))
    assert server.server_state == "ACTIVE"
    assert [context.pid for context in server.contexts] == [577]
    unasked = dict.fromkeys(("active_thread_percentage", "memory_limits"), Reason.NOT_RECORDED)
    assert server.unknown == {"context_limit": Reason.NOT_SUPPORTED, **unasked}
    assert (source.source, source.daemon, source.success, source.reason) == ("mps", "stack", True, None)
    assert from_json(to_json(look), DaemonLook) == look


def test_another_server_list_is_asked_about_once_more_and_no_further(daemon):
    daemon.tree.server(633)
    daemon.play(STACK)
    look, _ = daemon.look(known=[])
    assert [len(lines) for lines in daemon.asked()] == [3, 5]
    assert look.servers.value[0].clients == (577, 578)
    assert look.servers.evidence["connections"] == 2

    daemon.play(STACK)
    daemon.look(known=[440])
    assert "get_client_list 440" in daemon.asked()[0]
    assert "get_client_list 633" in daemon.asked()[1]


def test_a_server_that_changes_between_the_two_connections_is_named(daemon):
    daemon.tree.server(2)
    daemon.play({"servers": {"1": {}}}, {"servers": {"2": {"clients": [9]}}})
    look, source = daemon.look()
    assert len(daemon.asked()) == 2
    (server,) = look.servers.value
    assert (server.pid, server.clients, server.server_state) == (2, None, None)
    assert server.unknown["clients"] is Reason.SERVER_CHANGED
    assert source.success


def test_a_light_look_leaves_the_table_out(daemon):
    daemon.tree.server(633)
    daemon.play(STACK)
    look, _ = daemon.look(known=[633], with_contexts=False)
    assert "ps" not in daemon.asked()[0]
    (server,) = look.servers.value
    assert server.contexts is None
    assert server.unknown["contexts"] is Reason.NOT_RECORDED


def test_only_this_daemon_is_asked_whatever_the_environment_says(daemon, monkeypatch):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/somewhere/else")
    monkeypatch.setenv("CUDA_MPS_PROTOCOL_VERSION", "3")
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "10")
    daemon.look()
    assert daemon.environments() == [{"CUDA_MPS_PIPE_DIRECTORY": str(daemon.directory)}]


def test_no_server_and_no_clients_are_empty_and_known(daemon):
    daemon.play({})
    look, _ = daemon.look()
    assert look.servers.value == ()
    daemon.tree.server(633)
    daemon.play({"servers": {"633": {}}})
    look, _ = daemon.look(known=[633])
    assert look.servers.value[0].clients == ()


def test_lists_may_be_separated_by_blanks(daemon):
    daemon.tree.server(633)
    daemon.play({**STACK, "separator": " "})
    assert daemon.look(known=[633])[0].servers.value[0].clients == (577, 578)


def test_a_multi_user_server_is_told_by_its_arguments(daemon):
    daemon.tree.server(633, multi_user=True)
    daemon.play(STACK)
    assert daemon.look(known=[633])[0].servers.value[0].multi_user is True


@pytest.mark.parametrize("vanishes", ["get_client_list", "get_server_status"])
def test_a_server_that_vanishes_between_two_questions_has_unknown_parts(daemon, vanishes):
    daemon.play({"servers": {"633": {"clients": [577], "vanishes": vanishes}}})
    look, _ = daemon.look(known=[633])
    (server,) = look.servers.value
    missing = "clients" if vanishes == "get_client_list" else "server_state"
    assert getattr(server, missing) is None
    assert server.unknown[missing] is Reason.SERVER_VANISHED
    assert (server.start_ticks, server.uid) == (None, None)
    assert server.unknown["uid"] is Reason.SERVER_VANISHED, "it is not in /proc either"


def test_a_zombie_server_keeps_what_is_known_of_it(daemon):
    daemon.tree.server(633, state="Z", uid=7)
    daemon.play(STACK)
    (server,) = daemon.look(known=[633])[0].servers.value
    assert (server.uid, server.multi_user) == (7, None)
    assert server.unknown["multi_user"] is Reason.SERVER_VANISHED


def test_a_number_that_is_another_program_here_lends_the_server_no_facts(daemon):
    """A control daemon in a pid namespace of its own lists pids that are somebody else's in ours."""
    daemon.tree.add(633, command=b"postgres", uid=26)
    daemon.play(STACK)
    (server,) = daemon.look(known=[633])[0].servers.value
    assert (server.uid, server.start_ticks) == (None, None)
    assert server.unknown["uid"] is Reason.IDENTITY_AMBIGUOUS
    assert server.clients == (577, 578)


def test_a_rehearsal_is_told_by_its_socket_and_marked(daemon):
    assert not mps.is_rehearsal(daemon.directory)
    daemon.tree.add(633, command=b"python3")
    daemon.play(STACK)
    with socket.socket(socket.AF_UNIX) as server, tempfile.TemporaryDirectory() as short:
        (Path(short) / "pipe").symlink_to(daemon.directory)  # a socket's path has 107 characters
        server.bind(f"{short}/pipe/rehearsal")
        assert mps.is_rehearsal(daemon.directory)
        look, _ = daemon.look(known=[633])
    assert look.servers.state == "simulated"
    assert look.servers.value[0].start_ticks == 5000


def test_a_plain_file_of_that_name_is_no_rehearsal(daemon):
    (daemon.directory / "rehearsal").write_text("")
    assert not mps.is_rehearsal(daemon.directory)


def refused(look, source, up, reason):
    assert (look.up, look.up_reason) == (up, reason)
    assert look.servers.value is None
    assert look.servers.unknown_reason == reason
    assert look.default_active_thread_percentage is None
    assert look.unknown["default_active_thread_percentage"] is reason
    assert (source.success, source.reason) == (False, reason)
    assert source.detail
    assert from_json(to_json(look), DaemonLook) == look


def test_without_a_daemon_the_daemon_is_absent(daemon):
    daemon.play(mode="absent")
    refused(*daemon.look(), False, Reason.DAEMON_ABSENT)


def test_without_a_pipe_directory_the_daemon_is_absent(daemon, tmp_path):
    program = tmp_path / "control"
    program.write_text("#!/bin/sh\necho 'Cannot find MPS control daemon process'\nexit 1\n")
    program.chmod(0o755)
    look, source = asking_look(
        name="x", pipe_directory=tmp_path / "nowhere", known_servers=(), program=str(program), deadline=5,
        processes=Processes(daemon.tree.root),
    )  # fmt: skip
    refused(look, source, False, Reason.DAEMON_ABSENT)
    assert look.our_session is None
    assert "our_session" not in look.unknown


@pytest.mark.parametrize("mode", ["frozen", "frozen_in_the_middle"])
def test_a_frozen_daemon_is_silent_by_the_deadline(daemon, mode):
    daemon.tree.server(633)
    daemon.play(STACK, mode=mode)
    began = time.monotonic()
    look, source = daemon.look(known=[633], deadline=0.4)
    assert time.monotonic() - began < 2
    refused(look, source, None, Reason.DAEMON_SILENT)
    assert source.duration_seconds >= 0.4


def test_without_the_program_that_is_what_is_missing(daemon, tmp_path):
    look, source = daemon.look(program=str(tmp_path / "no-such-program"))
    refused(look, source, None, Reason.CONTROL_PROGRAM_MISSING)


def test_a_program_that_cannot_be_started_is_named(daemon, tmp_path):
    program = tmp_path / "control"
    program.write_bytes(b"\x7fELF nonsense")
    program.chmod(0o755)
    refused(*daemon.look(program=str(program)), None, Reason.SOURCE_FAILED)


@pytest.mark.parametrize("mode", ["prose", "dies", "status", "flood"])
def test_nonsense_is_named_nonsense_and_yields_no_number(daemon, mode):
    daemon.play(STACK, mode=mode)
    refused(*daemon.look(known=[633], deadline=10), None, Reason.DAEMON_NONSENSE)


@pytest.mark.parametrize("raw", [b"", b"\xff\xfe\xfd\n", b"\x00" * 50, b"633\n\xe2\x82\n", b"[1, 2]\n"])
def test_bytes_that_are_no_reply_are_nonsense(daemon, raw):
    daemon.play(mode="raw", raw=raw.hex())
    look, source = daemon.look()
    refused(look, source, None, Reason.DAEMON_NONSENSE)
    assert source.detail.isprintable()


@pytest.mark.parametrize("cut", [1, 5, 9, 12, 20, 30, 60])
def test_half_an_answer_is_nonsense(daemon, cut):
    daemon.play(STACK, mode="half", cut=cut)
    look, source = daemon.look(known=[633])
    refused(look, source, None, Reason.DAEMON_NONSENSE)


def test_a_daemon_killed_for_good_in_mid_answer_is_absent_at_the_next_look(daemon):
    daemon.play(STACK, mode="dies")
    assert daemon.look(known=[633])[0].up is None
    daemon.play(mode="absent")
    assert daemon.look(known=[633])[0].up is False


# --- limits ---

GPU = "GPU-92c9ca90-3e5d-6c46-f77e-a3d8af084002"


def test_limits_are_asked_on_the_same_connection_when_they_are_due(daemon):
    daemon.tree.server(633)
    limited = {"clients": [577], "percentage": "40.0", "limits": {GPU: "2G\n"}}
    daemon.play({"servers": {"633": limited}, "limits": {"0": "3G\n"}, "percentage": "50.0"})
    look, _ = daemon.look(known=[633], gpus=[GPU], limits_due=True)
    assert len(daemon.asked()) == 1
    (server,) = look.servers.value
    assert (server.active_thread_percentage, server.memory_limits) == (40.0, {GPU: 2 << 30})
    assert (look.default_active_thread_percentage, look.default_memory_limits) == (50.0, {GPU: 3 << 30})
    assert look.limits_asked_at == look.servers.measured_at
    assert from_json(to_json(look), DaemonLook) == look


def test_limits_are_not_asked_when_they_are_not_due_and_the_server_is_known(daemon):
    daemon.tree.server(633)
    daemon.play(STACK)
    look, _ = daemon.look(known=[633], gpus=[GPU])
    assert not any("pinned" in line or "get_active" in line for line in daemon.asked()[0])
    assert look.limits_asked_at is None
    assert look.unknown["default_memory_limits"] is Reason.NOT_RECORDED


def test_a_new_servers_limits_are_asked_with_its_clients(daemon):
    daemon.tree.server(633)
    daemon.play(STACK)
    look, _ = daemon.look(gpus=[GPU])
    assert [any("pinned" in line for line in lines) for lines in daemon.asked()] == [False, True]
    assert look.servers.value[0].memory_limits == {GPU: None}
    assert look.default_memory_limits == {GPU: None}


def test_two_default_limits_of_which_nobody_knows_which_was_set_last_are_unknown(daemon):
    daemon.play({"limits": {"0": "3G\n", GPU: "4G\n"}})
    look, _ = daemon.look(gpus=[GPU], limits_due=True)
    assert look.default_memory_limits == {}
    assert look.unknown["default_memory_limits"] is Reason.IDENTITY_AMBIGUOUS
    daemon.play({"limits": {"0": "3G\n", GPU: "3G\n"}})
    assert daemon.look(gpus=[GPU], limits_due=True)[0].default_memory_limits == {GPU: 3 << 30}


# What mpswatch's own look said on two H200s, before it asked about ordinals: `set_default_device_pinned_mem_limit 0 3G`
# had been sent, and "none is set" was written.
TWO = Path(__file__).parents[1] / "recordings/h200-580/two-gpus"
NUMBERS = (TWO / "limits-device-query.txt").read_text()


def recorded_on_two_gpus(what):
    lines = (TWO / "limits-check.txt").read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(what))
    return from_json(lines[at + 1].encode(), DaemonLook)


def as_recorded(look, *, defaults, numbers=NUMBERS):
    """What the control program answers where `look` was recorded; `defaults` as the daemon keeps them apart."""
    (server,) = look.servers.value
    amounts = {uuid: f"{limit >> 30}G\n" for uuid, limit in server.memory_limits.items() if limit}
    return {
        "servers": {
            str(server.pid): {
                "clients": server.clients,
                "percentage": str(server.active_thread_percentage),
                "limits": amounts,
            }
        },
        "percentage": str(look.default_active_thread_percentage),
        "limits": defaults,
        "device_query": numbers,
    }


def limits_of(look):
    (server,) = look.servers.value
    return (
        look.default_active_thread_percentage,
        look.default_memory_limits,
        server.active_thread_percentage,
        server.memory_limits,
    )


def test_a_default_for_an_ordinal_is_the_limit_of_the_gpu_that_the_daemon_numbers_so(daemon):
    before = recorded_on_two_gpus("known server, limits set")
    second, first = before.default_memory_limits
    assert set(before.default_memory_limits.values()) == {None}, "the untruth"
    daemon.play(as_recorded(before, defaults={"0": "3G\n"}))
    look, _ = daemon.look(known=[1643], gpus=[second, first], limits_due=True)
    assert limits_of(look) == (50.0, {first: 3 << 30, second: None}, 40.0, {first: 2 << 30, second: None})
    assert "default_memory_limits" not in look.unknown
    assert [lines[0] for lines in daemon.asked()] == ["get_server_list", "device_query"]
    assert look.servers.evidence["connections"] == 2


def test_a_default_for_an_ordinal_and_another_for_the_same_gpus_uuid_leave_that_gpu_alone_unknown(daemon):
    before = recorded_on_two_gpus("a default for uuid and ordinal that differ")
    second, first = before.default_memory_limits
    assert before.default_memory_limits[first] == 900 << 20
    daemon.play(as_recorded(before, defaults={"0": "3G\n", first: "900M\n"}))
    look, _ = daemon.look(known=[1643], gpus=[second, first], limits_due=True)
    assert look.default_memory_limits == {second: None}
    assert look.unknown["default_memory_limits"] is Reason.IDENTITY_AMBIGUOUS


def test_where_nothing_is_set_two_gpus_cost_no_further_connection(daemon):
    before = recorded_on_two_gpus("known server, nothing set")
    daemon.play(as_recorded(before, defaults={}))
    look, _ = daemon.look(known=[1643], gpus=list(before.default_memory_limits), limits_due=True)
    assert limits_of(look) == limits_of(before)
    assert len(daemon.asked()) == 1


@pytest.mark.parametrize("numbers", ['Unknown command "device_query"\n', "", "Default\nDevice Ordinal\n0\n"])
def test_a_default_for_an_ordinal_that_may_be_either_gpu_is_unknown_of_both_and_never_none(daemon, numbers):
    before = recorded_on_two_gpus("known server, limits set")
    daemon.play(as_recorded(before, defaults={"1": "3G\n"}, numbers=numbers))
    look, source = daemon.look(known=[1643], gpus=list(before.default_memory_limits), limits_due=True)
    assert look.default_memory_limits == {}
    assert look.unknown["default_memory_limits"] is Reason.IDENTITY_AMBIGUOUS
    assert source.success, "all else is known"


# --- protocol 3: as NVIDIA documents it; none was ever seen running ---

SERVERS_3 = "name,uid,pid,status,pipe-directory,allowed-devices,context-ids\n"
CLIENTS_3 = "pid,server,device,namespace,cmd\n"
TRAINING = "training,1000,48201,Ready,/run/nvidia-mps/training,GPU-abcd-1234,-\n"
SPARE = "spare,0,-,Stopped,/run/nvidia-mps/spare,-,-\n"
AT_WORK = "51023,training,0,default,python train.py\n51023,training,1,default,python train.py\n"


@pytest.fixture
def daemon_3(daemon):
    """A control daemon that was started for protocol 3."""
    arguments = (b"nvidia-cuda-mps-control", b"-d", b"-p", b"3")
    daemon.tree.add(448, command=b"nvidia-cuda-mps", arguments=arguments)
    (daemon.directory / "nvidia-cuda-mps-control.pid").write_text("448")
    return daemon


def test_under_protocol_3_the_servers_and_clients_are_those_of_its_two_lists(daemon_3):
    daemon_3.tree.server(48201, uid=1000, ticks=40_000)
    daemon_3.play({"server list": SERVERS_3 + TRAINING + SPARE, "client list": CLIENTS_3 + AT_WORK})
    look, source = daemon_3.look()
    assert daemon_3.asked() == [["server list --format=csv"], ["client list --all --format=csv"]]
    assert (look.up, look.protocol, source.success) == (True, "3", True)
    assert look.servers.state == "measured"
    assert look.servers.evidence["servers_not_started"] == ["spare"]
    assert look.servers.evidence["protocol_3"] == "the daemon was started with -p 3"
    (server,) = look.servers.value
    assert (server.name, server.pid, server.uid, server.start_ticks) == ("training", 48201, 1000, 40_000)
    assert (server.server_state, server.clients) == ("Ready", (51023,))
    untold = {"multi_user", "contexts", "context_limit", "active_thread_percentage", "memory_limits"}
    assert server.unknown == dict.fromkeys(untold, Reason.NOT_SUPPORTED)
    assert look.unknown == dict.fromkeys(
        ("default_active_thread_percentage", "default_memory_limits"), Reason.NOT_SUPPORTED
    )
    assert from_json(to_json(look), DaemonLook) == look


def test_the_program_is_told_to_speak_protocol_3_and_whom_to_ask_and_no_more(daemon_3, monkeypatch):
    monkeypatch.setenv("CUDA_MPS_PROTOCOL_VERSION", "2")
    daemon_3.play({"server list": SERVERS_3, "client list": CLIENTS_3})
    look, _ = daemon_3.look()
    assert look.servers.value == ()
    expected = {"CUDA_MPS_PIPE_DIRECTORY": str(daemon_3.directory), "CUDA_MPS_PROTOCOL_VERSION": "3"}
    assert daemon_3.environments() == [expected, expected]


def test_a_server_that_came_between_the_two_lists_is_asked_for_again(daemon_3):
    daemon_3.tree.server(48201)
    late = {"server list": SERVERS_3, "client list": CLIENTS_3 + AT_WORK}
    daemon_3.play(late, late, {"server list": SERVERS_3 + TRAINING}, {"client list": CLIENTS_3 + AT_WORK})
    assert [server.clients for server in daemon_3.look()[0].servers.value] == [(51023,)]


def test_clients_of_a_server_that_is_never_listed_leave_everything_unknown(daemon_3):
    daemon_3.play({"server list": SERVERS_3 + SPARE, "client list": CLIENTS_3 + AT_WORK.replace("training", "spare")})
    look, source = daemon_3.look()
    assert (look.up, look.servers.value, source.reason) == (True, None, Reason.SERVER_CHANGED)
    assert "spare" in source.detail


@pytest.mark.parametrize(
    ("servers", "clients"),
    [("", CLIENTS_3), (SERVERS_3, ""), ("no such module\n", ""), (SERVERS_3 + TRAINING, CLIENTS_3 + "51023\n")],
)
def test_an_answer_in_protocol_3_that_is_not_as_documented_is_unsupported(daemon_3, servers, clients):
    daemon_3.play({"server list": servers, "client list": clients})
    unsupported(*daemon_3.look())


def test_a_daemon_of_protocol_3_that_is_frozen_is_silent(daemon_3):
    daemon_3.play({"server list": SERVERS_3}, mode="frozen")
    refused(*daemon_3.look(deadline=0.3), None, Reason.DAEMON_SILENT)


def unsupported(look, source):
    assert look.up is True
    assert look.protocol == "3"
    assert look.servers.value is None
    assert look.servers.unknown_reason == Reason.PROTOCOL_UNSUPPORTED
    assert (source.success, source.reason) == (False, Reason.PROTOCOL_UNSUPPORTED)


@pytest.mark.parametrize("arguments", [(b"-d", b"-p", b"3"), (b"-d", b"--protocol", b"3"), (b"--protocol=3",)])
@pytest.mark.parametrize("raw", [b"", b"\n", b"usage: nvidia-cuda-mps-control module verb\n"])
def test_protocol_3_is_told_by_how_the_daemon_was_started(daemon, arguments, raw):
    daemon.tree.add(448, command=b"nvidia-cuda-mps", arguments=(b"nvidia-cuda-mps-control", *arguments))
    (daemon.directory / "nvidia-cuda-mps-control.pid").write_text("448")
    daemon.play(mode="raw", raw=raw.hex())
    unsupported(*daemon.look())


def test_the_daemons_environment_wins_over_its_arguments(daemon):
    (daemon.directory / "nvidia-cuda-mps-control.pid").write_text("448")
    three, two = b"CUDA_MPS_PROTOCOL_VERSION=3", b"CUDA_MPS_PROTOCOL_VERSION=2"
    daemon.tree.add(448, command=b"nvidia-cuda-mps", environment=(three,))
    daemon.play(mode="raw", raw="")
    unsupported(*daemon.look())
    (daemon.tree.root / "448" / "environ").write_bytes(two + b"\0")
    (daemon.tree.root / "448" / "cmdline").write_bytes(b"nvidia-cuda-mps-control\0-p\x003\0")
    assert daemon.look()[1].reason is Reason.DAEMON_NONSENSE


def test_a_pid_file_that_names_another_program_proves_nothing(daemon):
    daemon.tree.add(448, command=b"bash", arguments=(b"x", b"-p", b"3"))
    (daemon.directory / "nvidia-cuda-mps-control.pid").write_text("448")
    daemon.play(mode="raw", raw="")
    assert daemon.look()[1].reason is Reason.DAEMON_NONSENSE


def test_protocol_3_is_told_by_a_servers_folder_even_where_the_lists_look_empty(daemon):
    daemon.play({})
    folder = daemon.directory / "training"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as server, tempfile.TemporaryDirectory() as short:
        (Path(short) / "training").symlink_to(folder)
        server.bind(f"{short}/training/control")
        unsupported(*daemon.look())


def test_a_daemon_that_does_not_know_the_first_command_speaks_some_other_protocol(daemon):
    daemon.play(mode="raw", raw=b'Unknown command "get_server_list"\n'.hex())
    look, source = daemon.look()
    assert (look.up, look.protocol, source.reason) == (True, None, Reason.PROTOCOL_UNSUPPORTED)
    assert look.unknown["protocol"] is Reason.PROTOCOL_UNSUPPORTED


def test_protocol_3_is_told_by_its_state_ready(daemon):
    daemon.play({"servers": {"633": {"state": "Ready"}}})
    unsupported(*daemon.look(known=[633]))


# --- whose session is ours ---


def test_the_lock_on_the_pipe_directory_names_our_session(daemon):
    daemon.play({})
    descriptor = os.open(daemon.directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        (daemon.tree.root / "locks").write_bytes(Path("/proc/locks").read_bytes())
        assert daemon.look()[0].our_session == os.getpid()
    finally:
        os.close(descriptor)


def test_a_lock_taken_while_the_daemon_answers_is_seen(daemon):
    """Else a measuring client that joins a slow daemon's list meanwhile would be called managed."""
    status = daemon.directory.stat()
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    line = f"1: FLOCK  ADVISORY  WRITE 880 {place} 0 EOF"
    program = daemon.directory.parent / "slow"
    program.write_text(f"#!/bin/sh\ncat >/dev/null\necho '{line}' >{daemon.tree.root}/locks\nprintf '\\n100.0\\n\\n'\n")
    program.chmod(0o755)
    look, source = daemon.look(program=str(program))
    assert source.success
    assert look.our_session == 880


def test_two_holders_of_one_lock_are_ambiguous(daemon):
    status = daemon.directory.stat()
    place = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for pid in (10, 11):
        daemon.tree.lock(f"1: FLOCK  ADVISORY  WRITE {pid} {place} 0 EOF")
    look, _ = daemon.look()
    assert look.our_session is None
    assert look.unknown["our_session"] is Reason.IDENTITY_AMBIGUOUS


def test_a_lock_table_that_cannot_be_read_leaves_our_session_unknown(daemon):
    (daemon.tree.root / "locks").unlink()
    look, _ = daemon.look()
    assert look.our_session is None
    assert look.unknown["our_session"] is Reason.SOURCE_FAILED


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_a_pipe_directory_that_this_user_may_not_enter_is_a_permission_and_no_absence(tmp_path):
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        closed = Path(directory) / "closed"
        closed.mkdir(mode=0o700)
        (Path(directory) / "control").write_text("#!/bin/sh\necho Cannot find MPS control daemon process\nexit 1\n")
        (Path(directory) / "control").chmod(0o755)
        program = (
            "import os\nfrom pathlib import Path\nfrom mpswatch import mps\nfrom mpswatch.proc import Processes\n"
            "os.seteuid(65534)\n"
            f"directory = Path({directory!r})\n"
            "look, source = mps.look(name='x', pipe_directory=directory / 'closed' / 'pipe', known_servers=(),"
            " program=str(directory / 'control'), deadline=5, processes=Processes())\n"
            "print(look.up, source.reason.value)\n"
        )
        printed = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False
        )
    assert printed.stdout.strip() == "None permission", printed.stderr


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_whatever_a_control_program_prints_the_look_is_a_document(daemon, raw):
    daemon.play(mode="raw", raw=raw.hex())
    look, source = daemon.look(known=[633])
    assert from_json(to_json(look), DaemonLook) == look
    assert source.success == (look.servers.value is not None)


@pytest.mark.parametrize("silently", [None, 0, 1])
@pytest.mark.parametrize(("drops", "up"), [(1, True), (2, True), (3, None)])
def test_a_question_that_the_daemon_dropped_is_asked_again_twice(daemon, drops, up, silently):
    """It hangs up on one of two programs that ask at the same moment (seen on an H200)."""
    daemon.play(STACK, drops=drops, silently=silently)
    look, source = daemon.look(known=[633])
    assert look.up is up
    assert source.reason == (None if up else "daemon_nonsense")
    assert len(daemon.asked()) == min(drops + 1, 3)


def test_a_dropped_question_is_not_asked_again_past_its_deadline(daemon):
    daemon.play(STACK, drops=9)
    began = time.monotonic()
    look, _ = daemon.look(known=[633], deadline=0.4)
    assert look.up is None
    assert time.monotonic() - began < 2
