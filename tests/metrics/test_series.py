"""docs/fleet.md says how many series a host has, and what they belong to: counted here, number by number.

After a change that is meant: MPSWATCH_WRITE_GOLDEN=1 pytest tests/metrics/test_series.py, and read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from mpswatch.documents import CapStanding, CapVerdict, HistoryLook
from mpswatch.latest import Latest, Settings
from mpswatch.metrics import Exposition
from mpswatch.metrics.sweeps import REFUSALS

ENFORCED = CapVerdict(verdict="enforced", evidence=("as many multiprocessors as the cap allows",))
FLEET = Path(__file__).parents[2] / "docs" / "fleet.md"
BEGIN = "<!-- counted by tests/metrics/test_series.py: begin -->\n"
END = "<!-- counted by tests/metrics/test_series.py: end -->\n"


@pytest.fixture
def series(facts):
    """How many series a host has at which all is known that a driver tells, with `gpus` under each of its `daemons`."""

    def count(*, daemons=1, gpus=1, caps=5, foreign=0, judged=True):
        names = [f"daemon-{number}" for number in range(daemons)]
        served = [(name, f"GPU-{name}-{number}") for name in names for number in range(gpus)]
        settings = Settings(daemons={name: f"/run/{name}" for name in names}, poll_interval=15, sweep_interval=3600)
        latest = Latest(settings, host=facts.HOST, simulated=False)
        latest.expect([(*pair, "quick") for pair in served])
        latest.record(a_poll(facts, names, served, foreign))
        for name, uuid in served:
            latest.set_fault_log(name, None)
            cells = tuple(facts.cell(cap, verdict=ENFORCED) for cap in list(facts.CURVE)[:caps])
            run = f"{name}-{uuid}"
            pipe = settings.daemons[name]
            latest.record(facts.sweep(cells=cells, pipe_directory=pipe, gpu=facts.gpu(uuid), mps=None, run_id=run))
            if judged:
                latest.record(usual(facts, name, uuid, run, [cell.cap for cell in cells]))
        text = Exposition(latest).render("text").decode()
        return sum(not line.startswith("#") for line in text.splitlines())

    return count


def a_poll(facts, names, served, foreign):
    """A server and two managed clients on each GPU, and so many foreign tenants, each of a name of its own."""
    pids = {pair: 1000 * (number + 1) for number, pair in enumerate(served)}
    tenants = [
        facts.tenant(pid + place, "managed" if place else "server", gpu_uuid=uuid, daemon=name)
        for (name, uuid), pid in pids.items()
        for place in range(3)
    ]
    tenants += [facts.tenant(90 + n, "foreign", gpu_uuid=served[0][1], process_name=f"p{n}") for n in range(foreign)]
    looks = []
    for name in names:
        limits = {uuid: 40 << 30 for daemon, uuid in served if daemon == name}
        first = next(pid for (daemon, _), pid in pids.items() if daemon == name)
        clients = tuple(pid + place for (daemon, _), pid in pids.items() if daemon == name for place in (1, 2))
        server = facts.server(first, clients, memory_limits=limits)
        looks.append(
            facts.daemon(
                name,
                facts.known((server,)),
                pipe_directory=f"/run/{name}",
                our_session=None,
                default_memory_limits=limits,
            )
        )
    sources = facts.poll().sources
    mps = next(source for source in sources if source.daemon)
    return facts.poll(
        daemons=tuple(looks),
        gpus=facts.known(tuple(facts.gpu_look(gpu=facts.gpu(uuid, index=n)) for n, (_, uuid) in enumerate(served))),
        tenants=facts.known(tuple(tenants)),
        sources=(*(source for source in sources if not source.daemon), *(replace(mps, daemon=name) for name in names)),
    )


def usual(facts, daemon, uuid, run_id, caps):
    return HistoryLook(
        host=facts.HOST,
        daemon=daemon,
        gpu_uuid=uuid,
        plan="quick",
        run_id=run_id,
        judged_at=facts.NOON,
        simulated=False,
        caps=tuple(
            CapStanding(cap=cap, standing="usual", tflops=500.0, median=500.0, low=490.0, high=510.0, runs=40)
            for cap in caps
        ),
        previous=(),
    )


def counted(series):
    """The table and the sums of docs/fleet.md."""
    pair, cap, judged = 3, series(judged=False) - series(caps=4, judged=False), series() - series(caps=4)
    one, refusals = series(), len(REFUSALS)
    of_a_gpu = series(gpus=2) - one
    gpu = of_a_gpu - pair - refusals - 5 * judged
    # a second daemon with a GPU of its own is in three pairs more: each of the two beside the other's GPU
    daemon = series(daemons=2) - one - 3 * pair - gpu - refusals - 5 * judged
    host = one - of_a_gpu - daemon
    rows = (
        ("the host: mpswatch, archive, GPU source, what the process itself costs", host),
        ("each control daemon", daemon),
        ("each control daemon beside each GPU of the host: managed memory, lists that disagree", pair),
        ("each GPU of a daemon: memory, tenants, sweep health", gpu),
        ("the same: refusals, one for each known reason, at 0 from the start", refusals),
        ("each cap of that GPU and plan", cap),
        ("the same, beside its own history", judged - cap),
        ("each name of a foreign tenant (at most 20, and `other`)", series(foreign=1) - one),
    )
    table = "".join(f"| {what} | {number} |\n" for what, number in rows)
    return (
        f"| belongs to | series |\n| --- | --- |\n{table}\n"
        f"One GPU, one daemon, five caps: {host} + {daemon} + {pair} + {gpu} + {refusals} + 5 × {judged} = **{one}**.\n"
        f"Eight GPUs under one daemon: {host} + {daemon} + 8 × {of_a_gpu} = **{series(gpus=8)}**.\n"
    )


def test_the_documented_number_of_series_is_what_a_host_has(series):
    before, rest = FLEET.read_text().split(BEGIN)
    written, after = rest.split(END)
    if os.environ.get("MPSWATCH_WRITE_GOLDEN") == "1":
        FLEET.write_text(before + BEGIN + counted(series) + END + after)
    else:
        assert written == counted(series)


def test_the_sums_hold_for_many_daemons_gpus_and_names(series):
    one, daemon_and_gpu = series(), series(daemons=2) - series() - 9
    assert series(daemons=4) == one + 3 * daemon_and_gpu + 3 * (4 * 4 - 1)
    assert series(gpus=8) == one + 7 * (series(gpus=2) - one)
    assert series(foreign=30) == one + 21
