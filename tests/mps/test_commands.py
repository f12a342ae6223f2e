from __future__ import annotations

import pytest

from mpswatch.mps import ForbiddenCommand
from mpswatch.mps.commands import ALLOWED, command, script


@pytest.mark.parametrize(
    "name",
    [
        "quit", "quit -t 0", "start_server", "shutdown_server", "terminate_client",
        "set_default_active_thread_percentage",
        "set_active_thread_percentage", "get_device_client_list", "PS", "ps ", "", "get_server_list\nquit",
    ],
)  # fmt: skip
def test_what_is_not_on_the_list_is_never_sent(name):
    with pytest.raises(ForbiddenCommand):
        command(name)
    with pytest.raises(ForbiddenCommand):
        command(name, 633)


@pytest.mark.parametrize("pid", [0, -1, 1 << 22 | 1, "633", "633\nquit", 6.5, None])
def test_an_argument_is_a_pid_or_nothing_is_sent(pid):
    with pytest.raises(ForbiddenCommand):
        command("get_client_list", pid)


def test_every_command_takes_exactly_its_arguments():
    for name, count in ALLOWED.items():
        assert command(name, *[633] * count).decode().split()[0] == name
        with pytest.raises(ForbiddenCommand):
            command(name, *[633] * (count + 1))


def test_the_list_only_asks():
    assert all(name == "ps" or name.startswith("get_") for name in ALLOWED)


def test_the_order_is_the_one_in_which_replies_can_be_told_apart():
    assert script([440, 441], with_contexts=True).decode().splitlines() == [
        "get_server_list",
        "get_default_active_thread_percentage",
        "get_client_list 440",
        "get_server_status 440",
        "get_client_list 441",
        "get_server_status 441",
        "ps",
    ]
    assert b"ps" not in script([440], with_contexts=False)
