"""A stack can be run and told from outside: in a container, a unit, a terminal."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest


def rehearsal(*arguments):
    argv = [sys.executable, "-m", "mpswatch.rehearsal", *map(str, arguments)]
    return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=20)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_runs_until_it_is_told_to_stop(stack_directory, exists, number):
    argv = [sys.executable, "-m", "mpswatch.rehearsal", "run", stack_directory, "--demo"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        facts = json.loads(process.stdout.readline())
        assert facts["pipe_directory"] == str(stack_directory / "default" / "pipe")
        status = json.loads(rehearsal("status", stack_directory).stdout)
        assert [one["name"] for one in status["tenants"]] == ["chat", "embedding", "notebook"]
        added = json.loads(rehearsal("tell", stack_directory, "foreign", "name=nb", "memory_mib=10").stdout)
        assert exists(added["pid"])
        process.send_signal(number)
        assert process.wait(10) == 0
    assert not exists(added["pid"])
    assert not stack_directory.exists()


def test_an_order_that_fails_exits_1_with_one_line(stack):
    said = rehearsal("tell", stack.directory, "die", "what=server")
    assert (said.returncode, said.stderr) == (1, "the daemon 'default' has no server\n")


def test_what_is_not_understood_exits_2_with_the_usage():
    said = rehearsal("dance")
    assert said.returncode == 2
    assert "python -m mpswatch.rehearsal run DIR" in said.stderr


def test_an_order_with_half_a_character_is_a_named_error(stack):
    said = rehearsal("tell", stack.directory, "foreign", 'name="\\ud800"')
    assert said.returncode == 1
    assert said.stderr.startswith("the order 'foreign' cannot be sent: ")
    assert "Traceback" not in said.stderr
