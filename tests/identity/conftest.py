"""A /proc of made-up processes, and the trees of each kind of stack."""

from __future__ import annotations

import pytest

from mpswatch.identity import Identities
from mpswatch.proc import Processes


@pytest.fixture
def proc(tree):
    """A /proc that booted at a known moment."""
    (tree.root / "stat").write_text("cpu  1 2 3 4\nintr 5\nctxt 6\nbtime 1700000000\nprocesses 7\n")
    return tree


@pytest.fixture
def who(proc, tmp_path):
    """Ask who some processes are: `who(pid, …)` gives identities by pid, from one memory throughout a test."""
    processes = Processes(proc.root)
    made = {}

    def ask(*pids, root=tmp_path / "host", label_keys=()):
        identities = made.setdefault((root, label_keys), Identities(processes, root=root, label_keys=label_keys))
        return identities.of(processes.identities(pids))

    return ask


@pytest.fixture
def add(proc):
    """Add a process with a cgroup."""

    def add(pid, cgroup=b"0::/\n", **looks):
        folder = proc.add(pid, **looks)
        (folder / "cgroup").write_bytes(cgroup)
        return folder

    return add
