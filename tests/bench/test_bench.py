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


HEAVY = {
    "torch", "numpy", "rich", "pygments", "httpx", "pydantic", "cryptography", "jsonschema", "fsspec",
    "unittest", "doctest", "pdb", "pydoc", "sqlite3.dump", "xmlrpc", "tkinter", "curses", "lib2to3",
}  # fmt: skip
ONLY_WHERE_NEEDED = {"xml.etree": "nvidia-smi's report", "bcrypt": "a password", "difflib": "a misspelt key"}
OF_OTHER_COMMANDS = ("mpswatch.cli.", "mpswatch.rehearsal", "mpswatch.client", "mpswatch.report", "mpswatch.remote",
                     "mpswatch.daemon.doctor", "mpswatch.daemon.once", "mpswatch.container_init")  # fmt: skip
OF_RUN = {"mpswatch.cli.group", "mpswatch.cli.options", "mpswatch.cli.run_command"}


def test_the_daemon_loads_nothing_that_it_does_not_use():
    code = "import mpswatch.cli.run_command, mpswatch.daemon.run, sys; print(*sys.modules)"
    loaded = set(said("-c", code).split())
    assert not loaded & (HEAVY | ONLY_WHERE_NEEDED.keys())
    assert {name for name in loaded if name.startswith(OF_OTHER_COMMANDS)} <= OF_RUN
    others = {name for name in loaded if not name.startswith("mpswatch")}
    assert len(others) < 445, "each module is 50 KiB and a millisecond of every start"


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
