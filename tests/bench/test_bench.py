"""The daemon stays small: what it loads, what it holds after a start and a sweep, and what a day gains."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMIT_MIB = 50


def said(*arguments, seconds=110):
    answer = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=seconds, cwd=ROOT, check=False
    )
    assert answer.returncode == 0, answer.stdout[-2000:] + answer.stderr[-2000:]
    return answer.stdout


def test_the_daemon_loads_nothing_heavy_that_it_does_not_use():
    code = "import mpswatch.cli.run_command, mpswatch.daemon.run, sys; print(*sys.modules)"
    loaded = set(said("-c", code).split())
    heavy = {"torch", "numpy", "rich", "pygments", "httpx", "pydantic", "cryptography", "unittest", "doctest", "pdb"}
    of_other_commands = {"mpswatch.rehearsal", "mpswatch.client", "mpswatch.cli.show", "mpswatch.cli.live"}
    assert not loaded & (heavy | of_other_commands)
    assert len(loaded) < 680, "each module is 50 KiB and a millisecond of every start"


def test_a_command_loads_less_than_the_daemon():
    code = "import mpswatch.cli.check_config_command, sys; print(*sys.modules)"
    loaded = set(said("-c", code).split())
    assert not loaded & {"uvicorn", "starlette", "apscheduler", "pynvml", "prometheus_client", "rich"}


def test_the_daemon_is_small_after_its_start_and_after_a_sweep():
    code = "import sys, json; sys.path[:0] = ['tests/bench']; import items; print(json.dumps(items.memory()[0]))"
    found = json.loads(said("-c", code))
    assert found["after start"]["rss_mib"] < LIMIT_MIB, found
    assert found["after a sweep"]["rss_mib"] < LIMIT_MIB, found


@pytest.mark.timeout(420)
def test_a_day_of_polls_and_scrapes_gains_less_than_a_mebibyte():
    found = json.loads(said(HERE / "month.py", "--polls", "5760", seconds=400))
    assert found["growth_mib"] < 1, found


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_month_of_polls_and_scrapes_gains_less_than_a_mebibyte():
    found = json.loads(said(HERE / "month.py", "--polls", "170000", seconds=7000))
    assert found["growth_mib"] < 1, found
