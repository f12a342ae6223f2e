"""The control program's words are those of the recordings."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys

import pytest

from mpswatch.rehearsal import gpus

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="changing uid needs root")


def test_an_idle_daemon_answers_as_the_recorded_one(ask, recorded):
    said = recorded("idle-daemon.txt")
    assert len(said) > 8
    for command, status, reply in said:
        answer = ask(command)
        # the recording's next heading is not its own, and it ends each reply in a newline, one of nothing too
        wanted = (reply.split("\n##### ")[0].removesuffix("\n") + "\n").removeprefix("\n")
        assert (answer.returncode, answer.stdout) == (status, wanted), command


def test_without_a_daemon_it_says_so_and_exits_1(ask, recorded, tmp_path):
    ((_, status, reply), *_) = recorded("no-daemon.txt")
    assert status == 1
    for directory in (tmp_path / "missing", tmp_path):
        answer = ask("get_server_list", directory=directory)
        assert (answer.returncode, answer.stdout) == (1, reply.splitlines()[0] + "\n")


def test_a_directory_without_the_rehearsals_mark_is_never_spoken_to(ask, stack):
    (stack.pipe_directory / "rehearsal").rename(stack.pipe_directory / "hidden")
    assert ask("get_server_list").returncode == 1


def test_many_commands_on_one_connection_are_answered_in_order_with_nothing_between(stack, ask, recordings):
    client = stack.add_service("llm")
    server = stack.server_pid
    answer = ask(
        "get_server_list",
        f"get_client_list {server}",
        f"get_server_status {server}",
        "get_default_active_thread_percentage",
        "ps",
    )
    lines = answer.stdout.split("\n")
    recording = (recordings / "many-commands-one-connection.txt").read_text().replace("$", "").split("\n")
    assert lines[:4] == [str(server), str(client), "ACTIVE", "100.0"]
    assert lines[4] in recording  # the header of ps, column for column
    assert re.fullmatch(rf"{client} +1 +{server} +GPU-[0-9a-f-]{{18}} +\d+ +/srv/llm/.venv/bin/python3 *", lines[5])
    assert [match.start() for match in re.finditer(r"\S+", lines[5])] == [0, 10, 20, 35, 61, 76]
    assert lines[6:] == [""]


def test_a_server_without_clients_lists_nothing_at_all(stack, ask):
    pid = stack.add_service("llm")
    stack.remove(pid)
    assert ask(f"get_client_list {stack.server_pid}").stdout == ""


def test_what_changes_something_is_counted_and_refused_to_strangers(stack, ask):
    server = stack.add_service("llm") and stack.server_pid
    assert ask(f"terminate_client {server} 1").stdout == "Not enough privilege to execute terminate_client command\n"
    assert stack.status()["daemons"]["default"]["changing_commands"] == [f"terminate_client {server} 1"]


@needs_root
def test_another_user_may_query_and_not_quit(stack):
    script = """if True:
        import os, socket, sys
        os.setgroups([]), os.setgid(65534), os.setuid(65534)
        program = socket.socket(socket.AF_UNIX)
        program.connect(sys.argv[1] + "/control")
        program.sendall(b"get_default_active_thread_percentage\\nquit\\n")
        program.shutdown(socket.SHUT_WR)
        while reply := program.recv(4096):
            os.write(1, reply)
    """
    answer = subprocess.run(
        [sys.executable, "-ISc", script, stack.pipe_directory], check=True, capture_output=True, text=True
    )
    assert answer.stdout == "100.0\nNot enough privilege to execute quit command\n"
    assert stack.status()["daemons"]["default"]["up"]


def test_quit_ends_the_daemon_and_its_server_and_takes_its_files(stack, ask, eventually, exists):
    stack.add_service("llm")
    server = stack.server_pid
    ask("quit")
    eventually(lambda: not stack.status()["daemons"]["default"]["up"])
    assert not exists(server)
    assert list(stack.pipe_directory.iterdir()) == []
    assert ask("get_server_list").returncode == 1


def test_limits_are_answered_as_recorded(stack, ask):
    """tests/recordings: limits.txt; what is not set is nothing at all, and a server knows both names of a device."""
    uuid = gpus.uuid(0)
    stack.add_service("llm")
    server = stack.server_pid
    questions = [
        "get_default_device_pinned_mem_limit 0",
        f"get_default_device_pinned_mem_limit {uuid}",
        f"get_active_thread_percentage {server}",
        f"get_device_pinned_mem_limit {server} 0",
        f"get_device_pinned_mem_limit {server} {uuid}",
        f"get_device_pinned_mem_limit {server} 7",
        "get_device_pinned_mem_limit 4242 0",
    ]
    assert [ask(question).stdout for question in questions] == [
        *("", "", "100.0\n", "", "", ""),
        "Server 4242 not found\n",
    ]
    stack.tell("restart", memory_limit="2G", default_percentage=40.0)
    stack.add_service("llm")
    answers = [ask(question.replace(str(server), str(stack.server_pid))).stdout for question in questions]
    assert answers == ["2G\n", "", "40.0\n", "2G\n", "2G\n", "", "Server 4242 not found\n"]


def test_devices_are_numbered_as_recorded(stack, ask, recordings):
    recorded = (
        (recordings / "limits.txt").read_text().partition("['device_query 579'] -> (b'")[2].partition("', b''")[0]
    )
    stack.add_service("llm")
    said = ask("device_query").stdout
    for ours, theirs in [(str(stack.server_pid), "579"), (f"{gpus.NAME:<34}", f"{'NVIDIA H200':<34}")]:
        said = said.replace(ours, theirs)
    assert said.replace(gpus.uuid(0), "GPU-92c9ca90-3e5d-6c46-f77e-a3d8af084002") == recorded.replace("\\n", "\n")


def test_a_default_percentage_acts_on_servers_started_later(stack, ask, attach):
    assert ask("set_default_active_thread_percentage 30").stdout == "30.0\n"
    assert attach("100").reply()["attached"]["sm_count"] == 38


def test_the_pipe_directory_is_listed_as_the_recorded_one(stack, recordings):
    listing = (recordings / "idle-daemon.txt").read_text()
    expected = {name: mode for mode, name in re.findall(r"^([sp-][rwx-]{9}) .* (\S+)$", listing, re.MULTILINE)}
    assert len(expected) == 5
    found = {path.name: stat.filemode(path.stat().st_mode) for path in stack.pipe_directory.iterdir()}
    assert found.pop("rehearsal") == "srw-rw-rw-"
    assert found == expected


def test_the_log_has_the_recorded_form_and_size(stack, ask, recordings):
    stack.add_service("llm")
    log = stack.log_directory / "control.log"
    before = log.stat().st_size
    ask("get_server_list")
    # 5 entries, each with a stamp: what a query costs in the log (mps-facts: about 320 bytes)
    assert 250 < log.stat().st_size - before < 360
    stamp = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} Control +\d+\] .*")
    recording = (recordings / "wrong-uid-client.txt").read_text().splitlines()
    assert len([line for line in recording if stamp.fullmatch(line)]) > 10
    assert all(stamp.fullmatch(line) for line in log.read_text().splitlines())
    words = [line.partition("] ")[2] for line in log.read_text()[before:].splitlines()]
    assert words == ["Accepting connection...", "NEW UI", "Cmd:get_server_list", str(stack.server_pid), "UI closed"]
