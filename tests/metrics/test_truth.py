"""Any sequence of polls, runs, faults and waiting leaves every published series either true or absent, with a reason.

The oracle below is written from the documents alone: it knows nothing of how the metrics are built.
"""

from __future__ import annotations

import importlib.util
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mpswatch.documents import GpuProcess, Reason
from mpswatch.latest import Latest, Settings
from mpswatch.metrics import families

_spec = importlib.util.spec_from_file_location("truth_facts", Path(__file__).parents[1] / "latest/facts.py")
facts = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(facts)

REASONS = st.sampled_from([Reason.DAEMON_SILENT, Reason.NVML_ERROR, Reason.SOURCE_STUCK, Reason.PERMISSION])
MEMORY = st.one_of(st.none(), st.integers(0, 10**12))
WAITS = st.sampled_from([0.0, 1.0, 14.0, 44.0, 46.0, 3600.0, 20000.0])
"""Seconds before a fact comes. A rule of its own for time would not do: whole examples go without a rule."""
KINDS = st.sampled_from(["managed", "foreign", "ours", "unresolved", "server"])
OTHER_GPU = "GPU-99999999-0000"


def without(field, reason):
    return facts.server(**{field: None, "unknown": {field: reason}})


@st.composite
def tenants(draw):
    made = []
    for pid in draw(st.lists(st.integers(1, 60), unique=True, max_size=8)):
        kind = draw(KINDS)
        place = draw(st.sampled_from([facts.GPU, OTHER_GPU, None])) if kind == "managed" else facts.GPU
        made.append(
            facts.tenant(
                pid,
                kind,
                draw(MEMORY),
                gpu_uuid=place,
                process_name=draw(st.sampled_from(["a", "b", "other", 'q"', None])),
            )
        )
    return tuple(made)


@st.composite
def polls(draw):
    rows = draw(tenants())
    clients = tuple(sorted(row.pid for row in rows if row.kind in ("managed", "ours")))
    servers = draw(
        st.one_of(
            REASONS.map(facts.unknown),
            st.just(facts.known(())),
            st.just(facts.known((facts.server(clients=clients),))),
            REASONS.map(lambda reason: facts.known((facts.server(clients=None, unknown={"clients": reason}),))),
            REASONS.map(
                lambda reason: facts.known((facts.server(server_state=None, unknown={"server_state": reason}),))
            ),
        )
    )
    up = None if servers.value is None else True
    daemon = facts.daemon(
        servers=servers,
        up=up,
        up_reason=None if up else Reason(servers.unknown_reason),
        our_session=draw(st.sampled_from([None, 300])) if clients else None,
        unknown=draw(st.sampled_from([{}, {"our_session": Reason.PERMISSION}])),
    )
    processes = tuple(
        GpuProcess(pid=row.pid, used_memory_bytes=row.used_memory_bytes, mps_client=draw(st.sampled_from([True, None])))
        for row in rows
    )
    look = facts.gpu_look(
        processes=draw(st.one_of(st.just(facts.known(processes)), REASONS.map(facts.unknown))),
        conditions=facts.conditions(used=draw(MEMORY)),
    )
    return facts.poll(
        daemons=(daemon,),
        gpus=draw(st.one_of(st.just(facts.known((look,))), REASONS.map(facts.unknown))),
        tenants=draw(st.one_of(st.just(facts.known(rows)), REASONS.map(facts.unknown))),
        foreign_unknown=draw(st.sampled_from([{}, {facts.GPU: Reason.DAEMON_SILENT}])),
    )


class Watching(RuleBasedStateMachine):
    """Facts come and time passes; after each step everything published is checked."""

    def __init__(self):
        super().__init__()
        self.now = 1000.0
        self.poll = self.polled_at = None
        self.run = self.ran_at = None
        self.refusals = 0
        self.latest = Latest(
            Settings(daemons={facts.DAEMON: facts.PIPE}, poll_interval=15, sweep_interval=3600),
            host=facts.HOST,
            simulated=False,
            monotonic=lambda: self.now,
        )
        self.latest.expect([(facts.DAEMON, facts.GPU, "quick")])

    @rule(poll=polls(), wait=WAITS)
    def a_poll_comes(self, poll, wait):
        self.time_passes(wait)
        self.latest.record(poll)
        self.poll, self.polled_at = poll, self.now

    @rule(
        failed=st.dictionaries(st.sampled_from(sorted(facts.CURVE)), REASONS),
        step=st.integers(-(10**6), 10**6),
        wait=WAITS,
    )
    def a_run_comes_whatever_the_wall_clock_says(self, failed, step, wait):
        self.time_passes(wait)
        self.run, self.ran_at = facts.sweep(facts.NOON + timedelta(seconds=step), failed=failed), self.now
        self.latest.record(self.run)

    @rule(reason=REASONS, wait=WAITS)
    def a_sweep_is_refused(self, reason, wait):
        self.time_passes(wait)
        self.latest.record(facts.refusal(reason))
        self.refusals += 1

    def time_passes(self, seconds):
        self.now += seconds
        self.everything_published_is_true_or_absent_with_a_reason()

    @invariant()
    def everything_published_is_true_or_absent_with_a_reason(self):
        self.found = {
            (family.spec.quantity, labels): value
            for family in families(self.latest.view())
            for labels, value in family.samples.items()
        }
        assert self.found["metrics_errors_total", ()] == 0
        self.reasons = {labels[:3] for name, labels in self.found if name == "unknown"}
        self.check_poll()
        self.check_run()
        assert self.found["sweeps_total", (facts.DAEMON, facts.GPU, "quick", "refused")] == self.refusals

    def check(self, name, labels, truth, *, daemon="", uuid=""):
        """One series: equal to the truth, or absent (a truth of None) with a reason for this daemon and GPU."""
        value = self.found.get((name, labels))
        assert value == truth, (name, labels, value, truth)
        if truth is None:
            assert {(daemon, uuid, name), (daemon, "", name), ("", "", name)} & self.reasons, (name, labels)

    def check_poll(self):
        poll = self.poll if self.poll is not None and self.now - self.polled_at < 45 else None
        daemon = facts.DAEMON
        look = poll.daemons[0] if poll else None
        servers = look.servers.value if look else None
        listed = servers is not None and all(server.clients is not None for server in servers)
        rows = poll.tenants.value if poll else None
        gpus = poll.gpus.value if poll else None
        gpu = gpus[0] if gpus else None
        seen = gpu is not None and gpu.processes.value is not None and rows is not None

        self.check("mps_up", (daemon,), 1 if look and look.up else None, daemon=daemon)
        managed = [row for row in rows or () if row.kind == "managed"]
        clients = {pid for server in servers or () for pid in server.clients or ()}
        listed = listed and not (clients and look.unknown)
        count = len(managed) if rows is not None else None if look is None or look.our_session else len(clients)
        self.check("managed_clients", (daemon,), count if listed else None, daemon=daemon)
        here = [row for row in managed if row.gpu_uuid == facts.GPU]
        known = [row.used_memory_bytes for row in here if row.used_memory_bytes is not None]
        nobody = not any(row.gpu_uuid in (facts.GPU, None) for row in managed)
        total = sum(known) if known else 0 if nobody else None
        self.check(
            "managed_memory_bytes",
            (daemon, facts.GPU),
            total if listed and seen else None,
            daemon=daemon,
            uuid=facts.GPU,
        )
        foreign = [row for row in rows or () if row.kind == "foreign"]
        known = [row.used_memory_bytes for row in foreign if row.used_memory_bytes is not None]
        total = sum(known) if known else None if foreign else 0
        seen = seen and not poll.foreign_unknown
        self.check("foreign_tenants", (facts.GPU,), len(foreign) if seen else None, uuid=facts.GPU)
        self.check("foreign_memory_bytes", (facts.GPU,), total if seen else None, uuid=facts.GPU)
        used = gpu.conditions.memory_used_bytes if gpu else None
        self.check("gpu_memory_used_bytes", (facts.GPU,), used, uuid=facts.GPU)
        if poll is None:
            assert not [key for key in self.found if key[0].startswith(("managed", "foreign", "gpu_info", "poll_suc"))]

    def check_run(self):
        target = (facts.DAEMON, facts.GPU, "quick")
        fresh = self.run is not None and self.now - self.ran_at < 3 * 3600
        for cap in facts.CURVE:
            cell = next(cell for cell in self.run.cells if cell.cap == cap) if fresh else None
            for name, truth in (
                ("cap_tflops", cell and cell.tflops),
                ("cap_sm_count", cell and cell.sm_count),
                ("cap_self_managed", cell and cell.self_was_managed),
            ):
                assert self.found.get((name, (*target, cap))) == truth
            unknown = [labels for name, labels in self.found if name == "cap_unknown" and labels[3] in (cap, "")]
            assert len(unknown) == (cell is None or cell.tflops is None)


Watching.TestCase.settings = settings(
    max_examples=50,
    stateful_step_count=10,
    deadline=None,
    derandomize=True,
    phases=(Phase.generate, Phase.shrink),  # explaining would trace every line
    suppress_health_check=[HealthCheck.too_slow],
)
test_any_sequence_leaves_every_series_true_or_absent = Watching.TestCase


@pytest.mark.slow
@pytest.mark.timeout(1200)  # one that strikes in the middle of a draw is told as FlakyStrategyDefinition
class TestLongForm(Watching.TestCase):
    settings = settings(Watching.TestCase.settings, max_examples=1000, stateful_step_count=30, derandomize=False)
