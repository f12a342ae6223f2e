from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from mpswatch.cli.show import print_poll
from mpswatch.documents import DaemonLook, from_json

RECORDED = Path(__file__).parents[1] / "recordings/h200-580/two-gpus/limits-check.txt"


def printed(snapshot):
    out = io.StringIO()
    print_poll(snapshot, Console(file=out, width=80, markup=False, emoji=False, highlight=False))
    return out.getvalue()


def recorded(what):
    lines = RECORDED.read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(what))
    return from_json(lines[at + 1].encode(), DaemonLook)


def test_what_clients_are_given_at_most_is_shown_with_who_said_so_and_when(facts):
    said = printed(facts.poll(daemons=(recorded("a default for uuid and ordinal that differ"),))).splitlines()
    source = "(nvidia-cuda-mps-control at 22:08:47 UTC)"
    assert f"x: each client of server 1643 gets at most 40 %, 2 GiB of GPU-e8d742f7 {source}" in said
    assert f"x: each client of servers to come gets at most 50 %, 900 MiB of GPU-e8d742f7 {source}" in said


def test_where_no_limit_is_set_none_is_spoken_of(facts):
    assert "at most" not in printed(facts.poll(daemons=(recorded("known server, nothing set"),)))
