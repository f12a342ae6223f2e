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
from mpswatch.documents import SweepDocument
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
