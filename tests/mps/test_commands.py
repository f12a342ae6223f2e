from __future__ import annotations

import pytest

from mpswatch.mps import ForbiddenCommand
from mpswatch.mps.commands import ALLOWED, arguments, command, script
from mpswatch.mps.devices import Device

UUID = "GPU-92c9ca90-3e5d-6c46-f77e-a3d8af084002"


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
    for name, kinds in ALLOWED.items():
        arguments = [{"S": 633, "D": "0"}[kind] for kind in kinds]
        assert command(name, *arguments).decode().split() == [name, *map(str, arguments)]
        with pytest.raises(ForbiddenCommand):
            command(name, *arguments, 633)


@pytest.mark.parametrize("device", [0, "", "-1", "0 1", "GPU-1", f"{UUID}\nquit", UUID.upper(), "MIG-1", None])
def test_a_device_is_an_ordinal_or_a_whole_uuid(device):
    assert (
        command("get_default_device_pinned_mem_limit", UUID) == f"get_default_device_pinned_mem_limit {UUID}\n".encode()
    )
    with pytest.raises(ForbiddenCommand):
        command("get_default_device_pinned_mem_limit", device)


def test_the_list_only_asks():
    assert all(name in {"ps", "device_query"} or name.startswith("get_") for name in ALLOWED)


def test_under_protocol_3_two_lists_are_asked_for_and_nothing_else():
    assert arguments("server list") == ("server", "list", "--format=csv")
    assert arguments("client list") == ("client", "list", "--all", "--format=csv")
    for question in ("server delete", "client terminate", "server list --force", "--quit", "namespace set", ""):
        with pytest.raises(ForbiddenCommand):
            arguments(question)


def test_each_question_about_a_limit_stands_between_two_that_are_always_answered_by_a_decimal():
    assert script([440], with_contexts=True, devices=[Device(UUID, 0)]).decode().splitlines() == [
        "get_server_list",
        "get_default_active_thread_percentage",
        f"get_default_device_pinned_mem_limit {UUID}",
        "get_default_active_thread_percentage",
        "get_default_device_pinned_mem_limit 0",
        "get_default_active_thread_percentage",
        "get_client_list 440",
        "get_active_thread_percentage 440",
        f"get_device_pinned_mem_limit 440 {UUID}",
        "get_active_thread_percentage 440",
        "get_server_status 440",
        "ps",
    ]
    assert script([440], with_contexts=False, devices=[]).decode().splitlines() == [
        "get_server_list",
        "get_default_active_thread_percentage",
        "get_client_list 440",
        "get_active_thread_percentage 440",
        "get_server_status 440",
    ]


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
