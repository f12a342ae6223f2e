"""An accelerated month: polls and scrapes as fast as they go, with what happens in a month happening; memory before
and after.

usage: month.py [--polls N] [--directory DIR]      (170,000 polls at 15 s are a month, 5,760 a day)

Each poll is a new snapshot: tenants come, go and are called otherwise, the daemon falls silent and comes back, a
sweep ends every 240 polls, events go to the journal. Each goes the daemon's own way: the control daemon's reply is
parsed, the join is made, changes are told, the record hands facts to the latest view, archive and journal, and a scrape
is rendered in either format, plain and gzipped. Prints one JSON object; exits 1 when more than 1 MiB was gained.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE)]

from items import RECORDED, facts  # noqa: E402 -- the path above is for a plain interpreter
from measuring import resident  # noqa: E402

from mpswatch.archive import Archive  # noqa: E402
from mpswatch.changes import changes, remember  # noqa: E402
from mpswatch.daemon import memory  # noqa: E402
from mpswatch.documents import (  # noqa: E402
    DaemonLook,
    Event,
    PollSnapshot,
    Reason,
    SweepDocument,
    from_json,
)
from mpswatch.gpu import source  # noqa: E402
from mpswatch.gpu.source import Row  # noqa: E402
from mpswatch.journal import Journal  # noqa: E402
from mpswatch.latest import Latest, Settings  # noqa: E402
from mpswatch.metrics import Exposition, Format  # noqa: E402
from mpswatch.mps import grammar  # noqa: E402
from mpswatch.proc import Identity  # noqa: E402
from mpswatch.record import Record, archiving  # noqa: E402
from mpswatch.tenants import tell_apart  # noqa: E402
from mpswatch.web.api import as_json  # noqa: E402

TENANTS = 46
A_SWEEP = 240
SERVER = 100
ALLOWED_MIB = 1.0
"""What 170,000 polls may gain."""


class Month:
    """The daemon's facts and sinks, with a clock that is told what time it is."""

    def __init__(self, directory: Path) -> None:
        self._random = random.Random(1)
        self.now = datetime(2026, 11, 1, tzinfo=UTC)
        self._pids = itertools.count(1000)
        settings = Settings(daemons={facts.DAEMON: facts.PIPE}, poll_interval=15.0, sweep_interval=3600.0)
        self.latest = Latest(settings, host=facts.HOST, simulated=False, monotonic=self._seconds)
        self.exposition = Exposition(self.latest, monotonic=self._seconds)
        archive = Archive(directory, gzip=True, keep_bytes=2 << 20)
        archive.prepare()
        kept = archiving(archive, Journal(directory, rotate_bytes=1 << 20), self.latest)
        self.record = Record({"archive": kept, "latest": self.latest.record}, latest=self.latest)
        recorded = next(iter(sorted(RECORDED.glob("h200_*.json"))))
        self._document = from_json(recorded.read_bytes(), SweepDocument)
        self._tenants = [self._new() for _ in range(TENANTS)]
        self._before: PollSnapshot | None = None
        self._seen: tuple[Any, ...] = ()
        self.events = 0

    def _seconds(self) -> float:
        return self.now.timestamp()

    def _new(self) -> dict[str, Any]:
        pid = next(self._pids) % 4_000_000 + 1000
        return {"pid": pid, "foreign": pid % 8 == 0, "name": f"/opt/{self._random.random()}/program"}

    def turn(self, number: int) -> int:
        """One poll and one scrape; returns the bytes of the scrape."""
        self.now += timedelta(seconds=15)
        if number % 7 == 0:
            self._tenants[self._random.randrange(TENANTS)] = self._new()
        if number % 11 == 0:
            self._tenants[self._random.randrange(TENANTS)]["name"] = f"renamed {self._random.random()}"
        snapshot = self._poll(silent=number % 97 < 3)
        found = changes(self._before, snapshot)
        self._before = remember(self._before, snapshot)
        self.record(snapshot)
        for event in found:
            self.events += 1
            self.record(event)
        if number % A_SWEEP == 0:
            self._sweep(number)
        format_: Format = "text" if number % 2 else "openmetrics"
        if number % 40 == 0:
            as_json(self.latest.view(), private=True)
        return len(self.exposition.render(format_, compressed=number % 3 == 0))

    def _poll(self, *, silent: bool) -> PollSnapshot:
        clients = [tenant["pid"] for tenant in self._tenants if not tenant["foreign"]]
        reply = "\n".join([str(SERVER), "100.0", *map(str, clients), "ACTIVE", "Server not found", ""])
        said = grammar.parse(reply.encode(), servers=(SERVER,), with_contexts=True)
        server = facts.server(pid=SERVER, clients=said.about[SERVER].clients, contexts=said.contexts)
        look: DaemonLook = facts.daemon(servers=facts.known((server,), self.now), our_session=None)
        if silent:
            look = replace(look, up=None, up_reason=Reason.DAEMON_SILENT,
                           servers=facts.unknown(Reason.DAEMON_SILENT, self.now))  # fmt: skip
        rows = [
            Row(pid=tenant["pid"], used_memory_bytes=600 << 20, memory_unknown_reason=None, instance=(0, 0),
                mps_client=not tenant["foreign"], name=tenant["name"])
            for tenant in self._tenants
        ]  # fmt: skip
        gpus = (facts.gpu_look(processes=facts.known(source.merged(rows), self.now)),)
        identities = {
            tenant["pid"]: Identity(tenant["pid"], tenant["pid"] * 10, 1, 0, "python3", "S") for tenant in self._tenants
        }
        tenants, disagreements = tell_apart(
            daemons=(look,), gpus=gpus, identities=identities, previous=self._seen, now=self.now
        )
        self._seen = tenants
        return facts.poll(
            self.now, daemons=(look,), gpus=facts.known(gpus, self.now), tenants=facts.known(tenants, self.now),
            disagreements=disagreements,
        )  # type: ignore[no-any-return] # fmt: skip

    def _sweep(self, number: int) -> None:
        where = {"daemon": facts.DAEMON, "gpu_uuid": facts.GPU}
        self.record(
            Event(at=self.now, host=facts.HOST, simulated=False, kind="sweep_started", message="a sweep", **where)
        )
        document = replace(self._document, run_id=f"{self.now:%Y%m%dT%H%M%SZ}-{number:06x}", started_at=self.now,
                           finished_at=self.now)  # fmt: skip
        self.record(document)
        memory.give_back()  # as the daemon does after each sweep


def run(polls: int, directory: Path) -> dict[str, Any]:
    """Memory is read when caches, views and the journal's files have been through a few rounds, and at the end."""
    month = Month(directory)
    warm = min(polls // 4, 4 * A_SWEEP)
    began = time.monotonic()
    points: list[tuple[int, float]] = []
    for number in _numbered(polls):
        month.turn(number)
        if number == warm:
            memory.settle()
            before = resident()
        if number % max(1, polls // 12) == 0:
            points.append((number, resident()["rss_mib"]))
            print(f"{number} polls, {points[-1][1]} MiB, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    gc.collect()
    memory.give_back()
    after = resident()
    return {
        "polls": polls,
        "days": round(polls / 5760, 1),
        "seconds": round(time.monotonic() - began, 1),
        "events": month.events,
        "before": before,
        "after": after,
        "growth_mib": round(after["rss_mib"] - before["rss_mib"], 3),
        "anonymous_growth_mib": round(after["anonymous_mib"] - before["anonymous_mib"], 3),
        "points": points,
    }


def _numbered(polls: int) -> Iterator[int]:
    return iter(range(1, polls + 1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--polls", type=int, default=170_000)
    options = parser.parse_args()
    memory.one_heap()
    with tempfile.TemporaryDirectory() as scratch:
        found = run(options.polls, Path(scratch))
    print(json.dumps(found, indent=1))
    return 0 if found["growth_mib"] < ALLOWED_MIB else 1


if __name__ == "__main__":
    sys.exit(main())
