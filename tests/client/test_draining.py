"""When synchronising itself fails: nothing is left in flight, or the exit code says that nobody knows."""

from __future__ import annotations

import os
import time

import pytest

from mpswatch.client import child
from mpswatch.client.backend import Backend, Cell
from mpswatch.client.pieces import Device

CELL = Cell(1, "50", 64, 4, "fp16", 1, 20.0, 0, 0, None)


class Stubborn(Device):
    """Drains at the `works_at`-th try."""

    def __init__(self, works_at: int) -> None:
        self.works_at, self.tried = works_at, 0

    def drain(self) -> None:
        self.tried += 1
        if self.tried < self.works_at:
            raise MemoryError


def in_a_fork(tmp_path, device: Device, monkeypatch) -> tuple[int, str]:
    """The exit code and the last line of a child whose cell fails with this device at work."""
    monkeypatch.setattr(child, "DRAIN_PAUSE", 0.001)
    monkeypatch.setattr(child, "ignore_signals", lambda: None)

    class Failing(Backend):
        def attach(self, cell, pipe_directory_fd):  # noqa: ARG002 -- what a backend is asked
            return {"sm_count": 66}

        def allocate(self, cell):  # noqa: ARG002
            return device

        def reason_of(self, error):  # noqa: ARG002
            return None

    reading, writing = os.pipe()
    os.write(writing, b"start\n")
    heard, output = os.pipe()
    lock = os.open(tmp_path, os.O_RDONLY)
    pid = os.fork()
    if pid == 0:
        child.live(CELL, Failing(), child.Descriptors(reading, output, lock), time.monotonic(), None)
    os.close(output)
    said = os.read(heard, 65536)
    os.write(writing, b"go\n")
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    while chunk := os.read(heard, 65536):
        said += chunk
    for fd in (reading, writing, heard, lock):
        os.close(fd)
    return code, said.decode().splitlines()[-1]


@pytest.mark.parametrize(("works_at", "code"), [(1, 1), (3, 1), (100, 70)])
def test_it_is_tried_again_before_the_client_leaves(tmp_path, monkeypatch, works_at: int, code: int) -> None:
    left, last = in_a_fork(tmp_path, Stubborn(works_at), monkeypatch)
    assert left == code
    assert '"phase":"fill"' in last
