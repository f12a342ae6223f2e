from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from mpswatch.latest import Latest, Settings

_spec = importlib.util.spec_from_file_location("publishing_facts", Path(__file__).parent / "facts.py")
_facts = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_facts)


@pytest.fixture(scope="session")
def facts():
    """Ready-made documents (tests/latest/facts.py)."""
    return _facts


class Clock:
    """A monotonic clock that moves when told to."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    def wait(self, seconds):
        self.now += seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def latest(clock, facts):
    """A view of one daemon: polls every 15 s, sweeps every hour."""
    return Latest(
        Settings(daemons={facts.DAEMON: facts.PIPE}, poll_interval=15, sweep_interval=3600),
        host=facts.HOST,
        simulated=False,
        started_at=facts.NOON,
        version="0.1.0",
        monotonic=clock,
    )
