"""The whole exposition of two moments: everything is known, and nothing is (silence, each with its reason).

After a change that is meant: MPSWATCH_WRITE_GOLDEN=1 pytest tests/metrics/test_golden.py, and read the difference.
"""

from __future__ import annotations

import os
import platform
from datetime import timedelta
from pathlib import Path

import pytest

from mpswatch.documents import Reason
from mpswatch.metrics import Exposition

GOLDEN = Path(__file__).parent / "golden"


def everything_known(latest, facts):
    latest.expect([(facts.DAEMON, facts.GPU, "quick")])
    latest.set_fault_log(facts.DAEMON, None)
    latest.record(facts.poll())
    latest.record(facts.refusal(at=facts.NOON - timedelta(hours=1)))
    latest.record(facts.sweep())
    latest.record(facts.event("server_changed"))
    latest.archive_written(facts.NOON, 20480)


def nothing_known(latest, facts):
    latest.expect([(facts.DAEMON, facts.GPU, "quick")])
    latest.record(facts.blind_poll())


def everything_stale(latest, facts, clock):
    everything_known(latest, facts)
    clock.wait(3 * 3600)


def sweep_failed_in_part(latest, facts):
    latest.expect([(facts.DAEMON, facts.GPU, "quick")])
    latest.record(facts.poll())
    unmanaged = facts.cell(
        "50", failed=Reason.NOT_MANAGED, sm_count=132, sm_count_as_expected=False, self_was_managed=False
    )
    rest = tuple(facts.cell(cap) for cap in ("100", "75", "25"))
    latest.record(facts.sweep(cells=(*rest, unmanaged, facts.cell("10", failed=Reason.CLIENT_DIED))))


@pytest.mark.parametrize("moment", [everything_known, nothing_known, everything_stale, sweep_failed_in_part])
def test_the_exposition_is_the_golden_one(moment, latest, facts, clock):
    moment(latest, facts, *([clock] if moment is everything_stale else []))
    text = Exposition(latest, about_process=list).render("text").decode()
    text = text.replace(f'python_version="{platform.python_version()}"', 'python_version="3"')
    path = GOLDEN / f"{moment.__name__}.txt"
    if os.environ.get("MPSWATCH_WRITE_GOLDEN") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()
