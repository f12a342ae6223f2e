"""Protocol 3, by what NVIDIA's documentation shows: it was never seen running."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpswatch.documents import Reason
from mpswatch.mps import ReplyError
from mpswatch.mps.grammar_3 import NamedClient, NamedServer, clients, servers

SERVER_HEAD = b"name,uid,pid,status,pipe-directory,allowed-devices,context-ids\n"
CLIENT_HEAD = b"pid,server,device,namespace,cmd\n"
SERVER = b"training,1000,48201,Ready,/run/nvidia-mps/training,GPU-abcd-1234,-\n"
CLIENT = b"51023,training,0,default,python train.py\n"


def test_the_documented_servers_read_as_what_they_say(documented):
    expected = (NamedServer(name="training", uid=1000, pid=48201, state="Ready"),)
    assert servers((documented / "server-list.csv").read_bytes()) == expected
    assert servers(SERVER_HEAD + SERVER) == expected


def test_the_documented_clients_read_as_what_they_say(documented):
    expected = (
        NamedClient(pid=51023, server="training", namespace="default"),
        NamedClient(pid=51087, server="training", namespace="high_priority"),
    )
    said = (documented / "client-list.csv").read_bytes()
    assert clients(said) == expected
    assert clients(CLIENT_HEAD + said) == expected


@pytest.mark.parametrize("head", [SERVER_HEAD, b"NAME,UID,PID,STATUS,PIPE_DIRECTORY,ALLOWED_DEVICES,CONTEXT_IDS\n"])
def test_only_a_header_proves_that_there_is_no_server(head):
    assert servers(head) == ()
    assert clients(b"PID,SERVER,DEVICE,NAMESPACE,COMMAND\n") == ()
    for read in (servers, clients):
        for nothing in (b"", b"\n", b"\n\n"):
            with pytest.raises(ReplyError):
                read(nothing)


def test_a_server_called_name_is_no_header():
    assert servers(b"name,0,7,Ready,/run/nvidia-mps/name,0,-\n")[0].name == "name"


@pytest.mark.parametrize("pid", [b"-", b"0"])
def test_a_server_that_has_not_started_has_no_process(pid):
    assert servers(SERVER.replace(b"48201", pid))[0].pid is None


@pytest.mark.parametrize(
    "devices", [b"-", b"all", b"0,1", b"GPU-abcd-1234,GPU-efgh-5678", b'"GPU-abcd-1234,GPU-efgh-5678"', b"MIG-12ab"]
)
def test_devices_and_contexts_may_hold_commas_and_are_not_used(devices):
    assert servers(SERVER.replace(b"GPU-abcd-1234", devices).replace(b",-\n", b",3,4\n"))[0].pid == 48201


@pytest.mark.parametrize("command", [b"", b"a,b,c", b"51087", b'sh -c "x, y"', b"\xff\x1b[2J"])
def test_a_command_is_whatever_is_left(command):
    assert clients(b"51023,training,0,default," + command + b"\n")[0].pid == 51023


@pytest.mark.parametrize(
    "data",
    [
        SERVER[:-1], SERVER + b"x\n", SERVER * 2, SERVER + SERVER.replace(b"training", b"other", 1),
        b"Unknown command\n", b"633\n", b"NAME UID PID STATUS\n", SERVER_HEAD.replace(b",context-ids", b""),
        SERVER_HEAD.replace(b"status", b"state") + SERVER, SERVER_HEAD[:-1] + b",cgroup\n" + SERVER,
        SERVER.replace(b"training,", b"Training,", 1), SERVER.replace(b"1000", b"-1"),
        SERVER.replace(b"1000", b"4294967295"), SERVER.replace(b"48201", b"9999999"), SERVER.replace(b"48201", b"x"),
        SERVER.replace(b"Ready", b"ready!"), SERVER.replace(b"/run", b"run"), SERVER.replace(b",-\n", b"\n"),
        SERVER_HEAD + b"No servers are running.\n", b"\xff\xfe\n",
    ],
)  # fmt: skip
def test_any_other_list_of_servers_is_a_named_error(data):
    with pytest.raises(ReplyError) as caught:
        servers(data)
    assert caught.value.reason is Reason.DAEMON_NONSENSE
    assert "server list" in caught.value.detail or "middle of a line" in caught.value.detail


@pytest.mark.parametrize(
    "data",
    [
        CLIENT[:-1], CLIENT + b"x\n", b"51023\n", b"51023,training,0,default\n", CLIENT.replace(b"51023", b"0"),
        CLIENT.replace(b"51023", b"9999999"), CLIENT.replace(b"training", b"Training"),
        b"pid,server,device,pci-id,linux-ns,maws-ns,cmd\n" + CLIENT, b"pid,server,namespace,device,cmd\n" + CLIENT,
        b"51023,training,0,default,python\ntrain.py\n", b"No clients.\n",
    ],
)  # fmt: skip
def test_any_other_list_of_clients_is_a_named_error(data):
    with pytest.raises(ReplyError) as caught:
        clients(data)
    assert caught.value.reason is Reason.DAEMON_NONSENSE


parts = st.sampled_from(
    [b"training", b"1000", b"48201", b"Ready", b"/run/x", b"GPU-1", b"-", b"", b"0", b"pid", b"name"]
)
rows = st.lists(st.lists(parts, min_size=1, max_size=8).map(b",".join), max_size=6).map(b"\n".join)


@given(st.one_of(st.binary(max_size=300), rows, rows.map(lambda data: data + b"\n")))
def test_any_bytes_are_a_list_or_a_named_error_and_no_number_is_invented(data):
    said = {int(number) for number in re.findall(rb"[0-9]+", data)}
    for read in (servers, clients):
        try:
            found = read(data)
        except ReplyError as error:
            assert error.reason is Reason.DAEMON_NONSENSE  # noqa: PT017 - an error is one of the two right outcomes
        else:
            assert {one.pid for one in found} - {None} <= said
