"""Everything is a real process, looks like what it plays, and is gone when it should be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mpswatch.rehearsal import RehearsalError, Stack

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="namespaces and cgroups need root")
OWNER = "import sys; from mpswatch.rehearsal import demo_stack; s=demo_stack(sys.argv[1]).start(); "
OWNER += "print(s.status()['director'], flush=True); sys.stdin.read()"


def everyone(stack):
    status = stack.status()
    daemon = status["daemons"]["default"]
    return [status["director"], daemon["pid"], daemon["server"]["pid"], *(one["pid"] for one in status["tenants"])]


def arguments(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]


def test_proc_shows_what_each_one_plays(stack):
    service = stack.add_service("llm")
    foreign = stack.add_foreign("nb", arguments=("/opt/nb/bin/python3", "-m", "kernel, with\ncomma"))
    daemon = stack.status()["daemons"]["default"]["pid"]
    assert arguments(service) == [b"/srv/llm/.venv/bin/python3", b"/srv/llm/main.py"]
    assert arguments(foreign) == [b"/opt/nb/bin/python3", b"-m", b"kernel, with\ncomma"]
    assert arguments(stack.server_pid) == [b"nvidia-cuda-mps-server"]
    assert arguments(daemon) == [b"nvidia-cuda-mps-control", b"-d"]
    assert Path(f"/proc/{stack.server_pid}/comm").read_text() == "nvidia-cuda-mps\n"
    assert Path(f"/proc/{service}/comm").read_text() == "python3\n"
    assert f"PPid:\t{daemon}\n" in Path(f"/proc/{stack.server_pid}/status").read_text()


def test_a_control_daemons_environment_tells_where_its_pipes_are(stack):
    daemon = stack.status()["daemons"]["default"]["pid"]
    environment = Path(f"/proc/{daemon}/environ").read_bytes().split(b"\0")
    assert b"CUDA_MPS_PIPE_DIRECTORY=" + os.fsencode(stack.pipe_directory) in environment


def test_stopping_leaves_no_process_and_no_file(stack_directory, exists):
    with Stack(stack_directory) as stack:
        stack.add_service("llm")
        stack.add_foreign("nb")
        stack.tell("hang")
        stack.tell("smi", how="hang")
        pids = everyone(stack)
    assert not [pid for pid in pids if exists(pid)]
    assert not stack_directory.exists()
    stack.stop()


def test_nothing_survives_a_kill_of_the_owner(stack_directory, exists, eventually):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, stack_directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert owner.stdout.readline()
    pids = everyone(Stack(stack_directory))
    assert len(pids) == 6
    owner.kill()
    owner.wait()
    owner.stdin.close()
    owner.stdout.close()
    eventually(lambda: not [pid for pid in pids if exists(pid)], seconds=3)
    eventually(lambda: not stack_directory.exists(), seconds=3)


def test_nothing_survives_a_kill_of_the_director_not_even_a_frozen_daemon(stack_directory, exists, eventually):
    with Stack(stack_directory) as stack:
        stack.add_service("llm")
        stack.tell("hang")
        pids = everyone(stack)
        os.kill(pids[0], signal.SIGKILL)
        eventually(lambda: not [pid for pid in pids if exists(pid)], seconds=3)
    with Stack(stack_directory) as again:  # what the killed one left behind is no obstacle
        assert again.add_service("llm")


def test_a_removed_tenant_is_gone(stack, exists):
    pid = stack.add_foreign("nb")
    stack.remove(pid)
    assert not exists(pid)
    with pytest.raises(RehearsalError, match="not one of this stack's"):
        stack.remove(os.getpid())


def test_a_tenant_that_dies_by_itself_is_noticed(stack, eventually):
    pid = stack.add_service("llm")
    os.kill(pid, signal.SIGKILL)
    assert eventually(lambda: stack.status()["departed"]) == [{"pid": pid, "name": "llm", "exit": -9}]
    eventually(lambda: stack.status()["daemons"]["default"]["server"]["clients"] == [])


def test_two_hundred_processes_are_there_at_once(stack, exists):
    pids = stack.tell("foreign", name="crowd", count=200, memory_mib=3)["pids"]
    assert len(set(pids)) == 200
    assert all(exists(pid) for pid in pids)
    listed = subprocess.run([stack.nvidia_smi, "-q", "-x"], check=True, capture_output=True).stdout
    assert listed.count(b"<process_info>") == 200


@pytest.mark.slow
def test_a_thousand_processes_are_there_at_once(stack):
    assert len(stack.tell("foreign", name="crowd", count=1000, memory_mib=3)["pids"]) == 1000


def test_an_escaped_service_looks_like_the_managed_one_and_is_no_client(stack, ask):
    managed = stack.add_service("llm")
    escaped = stack.add_service("llm", escaped=True)
    assert arguments(managed) == arguments(escaped)
    assert ask(f"get_client_list {stack.server_pid}").stdout == f"{managed}\n"


@needs_root
def test_a_service_may_live_in_a_pid_namespace_and_a_cgroup(stack_directory):
    container = "/system.slice/docker-" + "a" * 64 + ".scope"
    with Stack(stack_directory) as stack:
        try:
            pid = stack.add_service("llm", namespaced=True, cgroup=container)
        except RehearsalError as error:
            pytest.skip(str(error))
        assert Path(f"/proc/{pid}/status").read_text().split("NSpid:")[1].split("\n")[0].split() == [str(pid), "1"]
        assert container in Path(f"/proc/{pid}/cgroup").read_text()
        assert stack.status()["daemons"]["default"]["server"]["clients"][0]["pid"] == pid
        unit = stack.add_foreign("nb", cgroup="/system.slice/nb.service")
        assert "/system.slice/nb.service" in Path(f"/proc/{unit}/cgroup").read_text()
        stack.remove(unit)
        assert not list(Path("/sys/fs/cgroup").glob("**/nb.service"))
    assert not list(Path("/sys/fs/cgroup").glob("**/docker-aaaa*"))


def test_several_daemons_share_a_gpu_or_have_one_each(stack_directory):
    with Stack(stack_directory, gpus=2) as stack:
        pipe = stack.add_daemon("second", devices=[1])
        one, two = stack.add_service("llm"), stack.add_service("llm", daemon="second")
        servers = {name: daemon["server"] for name, daemon in stack.status()["daemons"].items()}
        assert [client["pid"] for client in servers["default"]["clients"]] == [one]
        assert [(client["pid"], client["device"]) for client in servers["second"]["clients"]] == [(two, 1)]
        assert pipe == stack.pipe_directory_of("second")


def test_a_visitor_comes_and_goes(stack, eventually):
    stack.tell("visitor", name="training", memory_mib=2400, away=0.05, stay=0.1, seed=7)

    def there():
        return [one for one in stack.status()["tenants"] if one["name"] == "training"]

    first = eventually(there)
    eventually(lambda: not there())
    second = eventually(there)
    assert first[0]["pid"] != second[0]["pid"]
    assert 1900 < second[0]["memory_mib"]["0"] < 2900
