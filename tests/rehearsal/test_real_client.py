"""The real measuring client on the stack: this is what makes harmlessness testable without a GPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from mpswatch.rehearsal import Stack

pytest.importorskip("numpy")
CELL = {"order": 1, "cap": "100", "size": 256, "iters": 4000, "dtype": "fp16", "seed": 1, "warm_up": 1, "samples": 0}


class Launcher:
    """mpswatch's launcher, spoken to in its own JSON lines."""

    def __init__(self, pipe_directory, environment):
        argv = [sys.executable, "-m", "mpswatch.client", "--backend", "numpy", "--pipe-directory", pipe_directory]
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **environment}
        )
        self.hear("ready")

    def say(self, **message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self, word):
        while line := self.process.stdout.readline():
            if word in (message := json.loads(line)):
                return message[word]
        raise AssertionError(f"the launcher left without saying {word}")


@pytest.fixture
def launch():
    launchers = []

    def launch(pipe_directory, **environment):
        launchers.append(Launcher(pipe_directory, environment))
        return launchers[-1]

    yield launch
    for launcher in launchers:
        launcher.process.stdin.close()
        launcher.process.wait(20)
        launcher.process.stdout.close()


def at_work(stack, pid, launcher, seconds=20.0):
    """Wait until the client has pieces behind it; one that gave up tells why."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        clients = {one["pid"]: one for one in stack.status()["daemons"]["default"]["server"]["clients"]}
        if pid not in clients:
            raise AssertionError(launcher.hear("failed"))
        if clients[pid]["pieces"] > 5:
            return
        time.sleep(0.01)
    raise AssertionError(f"still not at work: {clients[pid]}")


def test_a_client_whose_daemon_vanishes_harms_nobody(stack, launch, exists):
    service = stack.add_service("llm")
    launcher = launch(stack.pipe_directory)
    launcher.say(cell={**CELL, "deadline": 30.0})
    pid = launcher.hear("attached")["pid"]
    stack.wait_for_clients([pid])
    launcher.say(go=True)
    at_work(stack, pid, launcher)
    launcher.process.stdin.close()
    stack.wait_for_clients([], seconds=20)
    assert (stack.unsafe_ends(), stack.harmed_neighbours()) == ([], [])
    assert exists(service)


def test_a_client_that_is_killed_at_work_is_found_out(stack, launch):
    service = stack.add_service("llm")
    for trial in range(1, 6):  # a kill may fall between two pieces
        launcher = launch(stack.pipe_directory)
        launcher.say(cell={**CELL, "order": trial, "deadline": 30.0})
        pid = launcher.hear("attached")["pid"]
        launcher.say(go=True)
        at_work(stack, pid, launcher)
        os.kill(pid, signal.SIGKILL)
        stack.wait_for_clients([], seconds=20)
        launcher.process.stdin.close()
        if stack.unsafe_ends():
            break
    assert stack.harmed_neighbours() == [service]


def test_a_client_is_on_the_gpu_that_its_environment_names(stack_directory, launch):
    with Stack(stack_directory, gpus=2) as stack:
        second = "GPU-5e0ea55a-0000-4000-8000-000000000001"
        launcher = launch(stack.pipe_directory, CUDA_VISIBLE_DEVICES=second)
        launcher.say(cell={**CELL, "deadline": 30.0})
        assert launcher.hear("attached")["device_uuid"] == second
        launcher.process.stdin.close()
        stack.wait_for_clients([], seconds=20)
