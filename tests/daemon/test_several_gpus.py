"""Two GPUs and two control daemons, rehearsed: each GPU in turn under its own daemon, and a tenant on both is twice."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import pytest

from mpswatch.config import load
from mpswatch.daemon.once import sweep_once
from mpswatch.daemon.parts import make_parts
from mpswatch.daemon.targets import targets
from mpswatch.documents import PollSnapshot, SweepDocument, from_json
from mpswatch.rehearsal.stack import Stack
from mpswatch.sweep.stop import Stop


@pytest.fixture
def stack():
    with tempfile.TemporaryDirectory(prefix="mw-") as folder, Stack(f"{folder}/s", gpus=2) as running:
        running.add_daemon("second", devices=(1,))
        running.add_service("a", devices=[0])
        running.add_service("b", daemon="second")
        yield running


@pytest.fixture
def parts(stack, tmp_path):
    settings = {
        "daemons": [
            {"name": name, "pipe_directory": str(stack.pipe_directory_of(name))} for name in ("default", "second")
        ],
        "mps": {"control_program": str(stack.control_program)},
        "gpu": {"source": "nvidia-smi", "nvidia_smi": str(stack.nvidia_smi)},
        "sweep": {"settle": 0, "caps": [100, 50], "size": 96, "iters": 8, "client": {"python": sys.executable}},
        "archive": {"directory": str(tmp_path / "archive")},
    }
    file = tmp_path / "mpswatch.yml"
    file.write_text(json.dumps(settings))
    return make_parts(load(file), simulated=True)


def test_a_daemon_is_measured_on_the_gpus_that_it_serves_one_after_the_other(parts, stack, tmp_path):
    snapshot = parts.poller.look()
    first, second = (look.gpu.uuid for look in snapshot.gpus.value)
    aims = [(target.daemon, target.gpu_uuid) for target in targets(snapshot)]
    assert ("second", first) not in aims
    assert {("default", first), ("second", second)} <= set(aims)
    swept = sweep_once(
        parts, snapshot, trigger="test", stop=Stop(), progress=lambda _step: None, work_directory=Path(tmp_path)
    )
    assert all(isinstance(outcome, SweepDocument) for outcome in swept.outcomes), swept.outcomes
    assert [(outcome.mps.daemon, outcome.gpu.uuid) for outcome in swept.outcomes] == aims
    assert all(outcome.complete_sweep for outcome in swept.outcomes), [o.partial_run_note for o in swept.outcomes]
    for earlier, later in zip(swept.outcomes, swept.outcomes[1:], strict=False):
        assert earlier.finished_at <= later.started_at
    assert stack.unsafe_ends() == []


def test_the_clients_of_both_daemons_are_managed_and_a_stranger_on_two_gpus_is_two_rows(parts, stack):
    pid = stack.add_foreign("both", memory_mib={0: 100, 1: 200})
    snapshot = parts.poller.look()
    rows = [tenant for tenant in snapshot.tenants.value if tenant.pid == pid]
    assert sorted(tenant.used_memory_bytes >> 20 for tenant in rows) == [100, 200]
    assert len({tenant.gpu_uuid for tenant in rows}) == 2
    managed = {tenant.daemon for tenant in snapshot.tenants.value if tenant.kind == "managed"}
    assert managed == {"default", "second"}


@pytest.fixture
def recorded(recordings):
    """Polls of two H200 in one host (tests/gpu/two_gpus.py), by what they were taken for."""
    polls = json.loads((recordings.parent / "h200-580/two-gpus/polls.json").read_bytes())
    return {name: from_json(json.dumps(poll).encode(), PollSnapshot) for name, poll in polls.items()}


def test_a_server_whose_one_client_is_on_one_gpu_is_measured_on_both_that_it_serves(recorded):
    snapshot = recorded["only a client on the first GPU"]
    first, second = (look.gpu.uuid for look in snapshot.gpus.value)
    assert {t.gpu_uuid for t in snapshot.tenants.value if t.kind == "managed"} == {first}
    assert [(target.daemon, target.gpu_uuid) for target in targets(snapshot)] == [("both", first), ("both", second)]


def test_a_daemon_limited_to_a_gpu_by_uuid_or_index_is_measured_there_alone(recorded):
    found = recorded["daemons: auto"]
    first, second = (look.gpu.uuid for look in found.gpus.value)
    aims = [(Path(target.daemon).parent.name, target.gpu_uuid) for target in targets(found)]
    assert aims == [("both", first), ("both", second), ("second", second)]
    unused = recorded["limited by index, no server yet"]
    assert unused.daemons[0].servers.value == ()
    assert [(target.daemon, target.gpu_uuid) for target in targets(unused)] == [("unused", second)]


def test_the_order_of_a_daemons_gpus_or_of_a_clients_swaps_none(recorded):
    reversed_daemon, reversed_client = recorded["reversed"], recorded["a client that reverses them by index"]
    first, second = (look.gpu.uuid for look in reversed_daemon.gpus.value)
    assert reversed_daemon.daemons[0].visible_devices == (second, first)
    assert [target.gpu_uuid for target in targets(reversed_daemon)] == [first, second]
    rows = [t.gpu_uuid for t in reversed_client.tenants.value if "backwards" in t.identity.command_line]
    assert sorted(rows) == sorted([first, second])


def test_a_recorded_client_on_two_gpus_is_two_rows_and_one_stranger_is_on_its_own_gpu(recorded):
    snapshot = recorded["mpswatch poll"]
    first, second = (look.gpu.uuid for look in snapshot.gpus.value)
    kinds = [(t.gpu_uuid, t.kind) for t in snapshot.tenants.value]
    assert {row: kinds.count(row) for row in kinds} == {
        (first, "server"): 1, (first, "managed"): 2, (second, "server"): 1, (second, "managed"): 2,
        (second, "foreign"): 1,
    }  # fmt: skip
    assert {t.gpu_uuid for t in snapshot.tenants.value if t.pid == 733} == {first, second}
