"""kill -9 at a random moment: what was complete stays readable, nothing half-written shows, the next start goes on."""

from __future__ import annotations

import json
import random
import signal
import time

import pytest

from mpswatch.archive import read_run


@pytest.mark.parametrize(
    "times", [3, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])], ids=["three", "two_hundred"]
)
def test_a_daemon_killed_again_and_again_loses_no_run_and_harms_nobody(start, stack, until, times):
    moments = random.Random(20261130)
    published: set[str] = set()
    for _ in range(times):
        daemon = start(sweep={"interval": "1s", "iters": 200})
        assert daemon.url
        time.sleep(moments.uniform(0.0, 3.0))
        daemon.signal(signal.SIGKILL)
        daemon.wait()
        runs = list((daemon.archive / "runs").iterdir())
        names = {path.name for path in runs if path.name.endswith(".json")}
        for name in names:
            read_run(daemon.archive / "runs" / name)
        assert published <= names
        published = names
        for line in (daemon.archive / "journal.jsonl").read_text().splitlines()[:-1]:
            json.loads(line)
    last = start(sweep={"interval": "1s", "iters": 200})
    until(lambda: last.value("mpswatch_sweeps_total", outcome="complete"))
    assert last.stop() == 0
    assert not [path for path in (last.archive / "runs").iterdir() if path.name.startswith(".")]
    stack.wait_for_clients([])
    assert stack.unsafe_ends() == []
