"""How the tests speak to a stack: through its programs and its socket, as mpswatch does."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

CLIENT = Path(__file__).parent / "client.py"
SAID = re.compile(r"^\$ echo '(?P<command>.*)' \| nvidia-cuda-mps-control   \[rc=(?P<rc>\d+) \d+ms\]\n", re.MULTILINE)


@pytest.fixture
def ask(stack):
    """Ask the control program; the answer with exit status, as text."""

    def ask(*commands, directory=None, timeout=5.0):
        pipe = directory or stack.pipe_directory
        return subprocess.run(
            [stack.control_program],
            input="".join(f"{command}\n" for command in commands),
            env={"CUDA_MPS_PIPE_DIRECTORY": str(pipe)},
            check=False,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return ask


class Client:
    """A client process; `reply` is what the stack answered."""

    def __init__(self, pipe_directory, cap, says, uid):
        argv = [sys.executable, "-IS", CLIENT, pipe_directory, cap, says, *([str(uid)] if uid is not None else [])]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.process.pid
        assert self.process.stdout.readline() == b"asked\n"
        os.set_blocking(self.process.stdout.fileno(), False)

    def reply(self, seconds=5.0):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if (line := self.process.stdout.readline()) or self.process.poll() is not None:
                return json.loads(line) if line.startswith(b"{") else line.decode()
            time.sleep(0.005)
        return None

    def leave(self):
        self.process.stdin.close()
        self.process.wait(5)

    def vanish(self):
        self.process.kill()
        self.process.wait(5)


@pytest.fixture
def attach(stack):
    """Attach a client process; all are gone at the end."""
    clients = []

    def attach(cap="100", says="", uid=None, directory=None):
        clients.append(Client(directory or stack.pipe_directory, cap, says, uid))
        return clients[-1]

    yield attach
    for client in clients:
        client.vanish()
        client.process.stdin.close()
        client.process.stdout.close()


@pytest.fixture
def eventually():
    """Wait until something holds, for a bounded time."""

    def eventually(condition, seconds=5.0):
        until = time.monotonic() + seconds
        while not (result := condition()):
            assert time.monotonic() < until, "it did not come about in time"
            time.sleep(0.01)
        return result

    return eventually


@pytest.fixture
def recorded(recordings):
    """What a recording holds, command by command: (command, exit status, reply)."""

    def recorded(name):
        text = (recordings / name).read_text()
        pieces = SAID.split(text)[1:]
        said = zip(pieces[0::3], pieces[1::3], pieces[2::3], strict=True)
        return [(command, int(status), reply) for command, status, reply in said]

    return recorded


@pytest.fixture
def exists():
    """Whether a process is there (one that is merely unburied is not)."""

    def exists(pid):
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        return False

    return exists
