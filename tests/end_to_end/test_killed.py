"""kill -9 at a random moment: what was complete stays readable, nothing half-written shows, the next start goes on.

The long form (`pytest -m slow -s tests/end_to_end/test_killed.py`) prints the figures that
docs/measurements/kill-9-2026-11-30.md holds.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from mpswatch.archive import ArchiveError, read_run

SWEEPING = {"interval": "500ms", "iters": 20, "caps": [50]}
STARTING = 1.5
"""Seconds at most from the start of a process to its kill, where it is killed while it starts."""

RUNS_MOST = 2
"""Complete runs at most that a daemon is let through before it is killed in the next sweep."""

PATIENCE = 10.0
"""Seconds for what a daemon is let live for: on a machine that is too busy for it, it is killed all the same."""


class Reader(threading.Thread):
    """Somebody who reads every run as soon as its name shows, all the while."""

    def __init__(self, runs):
        super().__init__(daemon=True)
        self.runs = runs
        self.seen = {}
        self.unreadable = []
        self.changed = []
        self._done = threading.Event()

    def run(self):
        while not self._done.wait(0.01):
            self.look()

    def look(self):
        with contextlib.suppress(FileNotFoundError):
            for path in self.runs.iterdir():
                if path.name.startswith(".") or path.name in self.seen:
                    continue
                try:
                    self.seen[path.name] = (read_run(path).run_id, path.stat().st_size)
                except ArchiveError as error:
                    self.unreadable.append(error.detail)

    def finish(self):
        self._done.set()
        self.join()
        self.look()
        self.changed = [name for name, (_, size) in self.seen.items() if (self.runs / name).stat().st_size != size]


def where(daemon, events_before):
    """What the daemon was doing when it was killed, as its log and its journal tell."""
    if not daemon.said("serving"):
        return "starting"
    events = [json.loads(line)["kind"] for line in whole_lines(daemon.archive)][events_before:]
    kinds = [kind for kind in events if kind.startswith("sweep_")]
    return "sweeping" if kinds and kinds[-1] == "sweep_started" else "watching"


def whole_lines(archive):
    """The journal without its last line where that has no end."""
    journal = archive / "journal.jsonl"
    return journal.read_text().split("\n")[:-1] if journal.exists() else []


def live(daemon, moments, number):
    """Let it live until the moment at which it is to die: one in four dies while it starts, one in four as soon as it
    writes a run, the others somewhere in a sweep, with none to some complete runs behind them."""
    if number % 4 == 0:
        time.sleep(moments.uniform(0.0, STARTING))
        return
    assert daemon.url
    runs, began = daemon.archive / "runs", time.monotonic()
    if number % 4 == 1:
        within_patience(lambda: any(name.startswith(".") for name in names_in(runs)), 0.0)
        return
    before = len(names_in(runs))
    wanted = moments.randint(0, RUNS_MOST)
    within_patience(lambda: len(names_in(runs)) >= before + wanted, 0.01)
    pace = (time.monotonic() - began) / wanted if wanted else 1.0
    time.sleep(moments.uniform(0.0, pace))


def within_patience(condition, pause):
    until = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < until:
        time.sleep(pause)


def names_in(directory):
    with contextlib.suppress(FileNotFoundError):
        return os.listdir(directory)  # noqa: PTH208 -- looked at as often as can be
    return []


@pytest.mark.parametrize(
    "times", [8, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])], ids=["eight", "two_hundred"]
)
def test_a_daemon_killed_again_and_again_loses_no_run_and_harms_nobody(start, stack, short_path, until, times):
    moments = random.Random(20261130)
    neighbour = stack.add_service("trainer", memory_mib=2400, busy=True)
    archive = short_path / "archive"
    reader = Reader(archive / "runs")
    reader.start()
    published: set[str] = set()
    killed_while: collections.Counter[str] = collections.Counter()
    left_half_written = 0
    for number in range(times):
        before = len(whole_lines(archive))
        daemon = start(sweep=SWEEPING)
        live(daemon, moments, number)
        assert daemon.program.poll() is None, daemon.log_lines()[-5:]  # whatever the last kill left, it goes on
        daemon.signal(signal.SIGKILL)
        daemon.wait()
        killed_while[where(daemon, before)] += 1
        found = list((archive / "runs").iterdir()) if (archive / "runs").exists() else []
        names = {path.name for path in found if not path.name.startswith(".")}
        left_half_written += len(found) - len(names)
        for name in names - published:
            read_run(archive / "runs" / name)
        assert published <= names
        published = names
        for line in whole_lines(archive):
            json.loads(line)
    last = start(sweep=SWEEPING)
    until(lambda: last.value("mpswatch_sweeps_total", outcome="complete"))
    until(lambda: (last.value("mpswatch_cap_tflops", cap="50") or 0) > 0)  # for three intervals
    assert last.stop() == 0
    reader.finish()
    assert reader.unreadable == []
    assert reader.changed == []
    assert published < set(reader.seen)
    assert len(published) >= times / 4  # or there was too little to lose
    assert len({run_id for run_id, _ in reader.seen.values()}) == len(reader.seen)  # none was written twice
    assert not [path for path in (archive / "runs").iterdir() if path.name.startswith(".")]
    stack.wait_for_clients([])
    assert stack.unsafe_ends() == []
    assert stack.harmed_neighbours() == []
    assert Path(f"/proc/{neighbour}").exists()
    print(
        json.dumps(
            {
                "killed": times,
                "while": dict(killed_while),
                "complete_runs": len(reader.seen),
                "unreadable": len(reader.unreadable),
                "half_written_files_under_temporary_names": left_half_written,
                "unsafe_ends": len(stack.unsafe_ends()),
                "neighbours_harmed": len(stack.harmed_neighbours()),
            }
        )
    )
