"""What a stack can be told to do wrong, it does, and stops doing when told."""

from __future__ import annotations

import os
import subprocess

import pytest

from mpswatch.rehearsal import RehearsalError

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="changing uid needs root")


def daemon_of(stack):
    return stack.status()["daemons"]["default"]


def test_a_frozen_daemon_answers_nobody_until_it_is_thawed(stack, ask):
    stack.tell("hang")
    with pytest.raises(subprocess.TimeoutExpired):
        ask("get_server_list", timeout=0.3)
    assert daemon_of(stack)["frozen"]
    stack.tell("resume")
    assert ask("get_server_list").stdout == ""


def test_a_client_goes_on_while_the_control_daemon_is_frozen(stack, attach, eventually):
    service = stack.add_service("llm")
    client = attach("50", says="+-" * 500)
    client.reply()
    stack.tell("hang")
    eventually(lambda: daemon_of(stack)["server"]["clients"][-1]["pieces"] == 500)
    client.leave()
    eventually(lambda: [one["pid"] for one in daemon_of(stack)["server"]["clients"]] == [service])


@pytest.mark.parametrize(
    ("how", "answer"),
    [
        ("prose", "The control daemon is currently undergoing maintenance, please try again later.\n"),
        ("silence", ""),
        ("protocol3", 'Unknown command "get_server_list"\n'),
    ],
)
def test_a_lie_is_told_with_exit_status_0(stack, ask, how, answer):
    stack.tell("lie", how=how)
    said = ask("get_server_list")
    assert (said.returncode, said.stdout) == (0, answer)
    stack.tell("lie", how="")
    assert ask("get_server_list").stdout == ""


def test_half_a_line_has_no_end(stack, ask):
    stack.add_service("llm")
    stack.tell("lie", how="half_line")
    assert ask("get_server_list").stdout == str(stack.server_pid)[:-1]


def test_a_flood_is_ten_megabytes(stack, ask):
    stack.tell("lie", how="flood")
    assert len(ask("get_server_list").stdout) == 10_000_000


def test_bytes_may_be_no_text(stack):
    stack.tell("lie", how="not_utf8")
    said = subprocess.run(
        [stack.control_program], input=b"ps\n", capture_output=True, check=True, env=stack.environment
    )
    assert b"\xff" in said.stdout


def test_the_client_list_may_name_strangers(stack, ask):
    stack.add_service("llm")
    stack.tell("lie", how="wrong_clients")
    assert ask(f"get_client_list {stack.server_pid}").stdout == "1\n4194303\n"
    assert ask("get_server_list").stdout == f"{stack.server_pid}\n"


def test_any_words_can_be_put_into_its_mouth(stack, ask):
    stack.tell("lie", how="text", text="1 2\n3")
    assert ask("get_server_list", "ps").stdout == "1 2\n3"


def test_the_state_of_the_server_can_be_told(stack, ask):
    stack.add_service("llm")
    stack.tell("state", state="FAULT")
    assert ask(f"get_server_status {stack.server_pid}").stdout == "FAULT\n"
    stack.tell("honest")
    assert ask(f"get_server_status {stack.server_pid}").stdout == "ACTIVE\n"


def test_a_dead_daemon_leaves_its_files_and_its_server_dies_with_it(stack, ask, exists, eventually):
    service = stack.add_service("llm")
    server = stack.server_pid
    stack.tell("die")
    assert (stack.pipe_directory / "control").is_socket()
    assert ask("get_server_list").returncode == 1
    assert not exists(server)
    eventually(lambda: not exists(service))
    stack.tell("start")
    assert ask("get_server_list").stdout == ""


def test_a_dead_server_is_followed_by_another_with_the_next_client(stack, ask, exists, eventually):
    service = stack.add_service("llm")
    server = stack.tell("die", what="server")["pid"]
    eventually(lambda: not exists(service))
    assert ask("get_server_list").stdout == ""
    stack.add_service("llm")
    assert stack.server_pid not in {server, None}


def test_a_server_can_be_replaced_under_its_services(stack):
    before = [stack.add_service("llm"), stack.add_service("embedding")]
    told = stack.tell("replace_server")
    assert told["old"] != told["new"] == stack.server_pid
    assert len(told["services"]) == 2
    assert not set(told["services"]) & set(before)
    assert sorted(one["pid"] for one in daemon_of(stack)["server"]["clients"]) == sorted(told["services"])


@needs_root
def test_a_daemon_can_come_back_with_a_server_of_another_uid(stack):
    stack.add_service("llm")
    stack.tell("restart", server_uid=1001)
    assert daemon_of(stack)["server"]["uid"] == 1001
    assert daemon_of(stack)["server"]["clients"] == []


@needs_root
def test_a_client_of_another_uid_can_be_made_to_wait(stack, ask, eventually):
    service = stack.add_service("llm")
    waiting = stack.tell("queue", uid=1001)["pid"]
    assert ask(f"get_client_list {stack.server_pid}").stdout == f"{service}\n"
    log = (stack.log_directory / "control.log").read_text()
    assert f"NEW CLIENT {waiting} from user 1001: Server is not ready, push client to pending list" in log
    stack.remove(service)
    server = eventually(lambda: (daemon_of(stack)["server"] or {}).get("uid") == 1001 and daemon_of(stack)["server"])
    assert eventually(lambda: ask(f"get_client_list {server['pid']}").stdout) == f"{waiting}\n"


def test_a_daemon_may_speak_protocol_3_from_the_start(stack, ask):
    stack.tell("restart", protocol=3)
    assert ask("get_server_list").stdout == 'Unknown command "get_server_list"\n'
    service, uid = stack.add_service("llm"), os.getuid()
    servers, clients = (ask(f"{who} list --format=csv,noheader").stdout for who in ("server", "client"))
    assert servers.startswith(f"uid_{uid},{uid},{stack.server_pid},Ready,{stack.pipe_directory}/uid_{uid},GPU-")
    assert clients == f"{service},uid_{uid},0,default,/srv/llm/.venv/bin/python3\n"
    assert ask("server list --format=csv").stdout.startswith("name,uid,pid,status,")
    assert (stack.pipe_directory / f"uid_{uid}" / "control").is_socket()
    assert daemon_of(stack)["changing_commands"] == []
    ask("client terminate 1")
    assert daemon_of(stack)["changing_commands"] == ["client terminate 1"]


def test_a_fault_names_the_neighbour_that_died(stack, exists, eventually):
    service = stack.add_service("llm")
    assert stack.tell("break") == {"neighbour": service}
    eventually(lambda: not exists(service))
    assert stack.unsafe_ends() == []
    assert stack.harmed_neighbours() == [service]


@pytest.mark.parametrize(
    ("order", "details", "words"),
    [
        ("dance", {}, "none of the orders"),
        ("lie", {"how": "nicely"}, "none of the lies"),
        ("hang", {"daemon": "other"}, "there is no daemon 'other'"),
        ("foreign", {}, "missing 1 required keyword-only argument: 'name'"),
        ("foreign", {"name": "x", "colour": "red"}, "colour"),
        ("foreign", {"name": "x", "devices": [3]}, "are not below 1"),
        ("daemon", {"name": "bin"}, "cannot be a daemon's name"),
    ],
)
def test_an_order_that_is_not_understood_is_refused_in_words(stack, order, details, words):
    with pytest.raises(RehearsalError, match=words):
        stack.tell(order, **details)
    assert stack.status()["tenants"] == []
