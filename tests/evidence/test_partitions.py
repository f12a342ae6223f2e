"""A partitioned GPU in words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mpswatch.documents import Conditions, Envelope, Gpu, GpuLook, MigDevice, PollSnapshot, Reason
from mpswatch.evidence.partitions import partitioned

NOW = datetime(2026, 11, 30, tzinfo=UTC)
NAMED = MigDevice(
    index=0, uuid="MIG-41b3", profile="1g.18gb", gpu_instance_id=9, compute_instance_id=0, sm_count=16,
    memory_total_bytes=16 << 30,
)  # fmt: skip
NAMELESS = MigDevice(
    index=1, uuid=None, profile=None, gpu_instance_id=5, compute_instance_id=None, sm_count=60, memory_total_bytes=None
)


def envelope(value):
    return Envelope(value=value, state="measured", source="nvml", measured_at=NOW, evidence={}, unknown_reason=None)


def said(**changes):
    gpu = Gpu(uuid="GPU-1", index=0, name="NVIDIA H200", **changes)
    look = GpuLook(gpu=gpu, processes=envelope(()), conditions=Conditions(measured_at=NOW, source="nvml"))
    snapshot = PollSnapshot(
        host="here", started_at=NOW, finished_at=NOW, simulated=False, daemons=(), gpus=envelope((look,)),
        tenants=envelope(()), disagreements=(), sources=(),
    )  # fmt: skip
    return list(partitioned(snapshot))


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ((NAMED,), "MIG-41b3 (1g.18gb, 16 SMs, 16.0 GiB)"),
        ((NAMED, NAMELESS), "16.0 GiB), GPU instance 5, compute instance ? (60 SMs)"),
        ((), "no instance is made"),
        (None, "its instances unknown (insufficient_permissions)"),
    ],
)
def test_its_instances_are_named_and_why_it_is_left_alone(devices, words):
    unknown = {} if devices is not None else {"mig_devices": Reason.INSUFFICIENT_PERMISSIONS}
    (line,) = said(mig_enabled=True, mig_devices=devices, unknown=unknown)
    assert line.startswith("GPU-1 is partitioned by MIG, where a cap means something else, and left alone: ")
    assert line.endswith(words)


@pytest.mark.parametrize("enabled", [False, None])
def test_of_others_nothing_is_said(enabled):
    assert said(mig_enabled=enabled) == []
