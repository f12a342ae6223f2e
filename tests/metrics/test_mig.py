"""The instances of a partitioned GPU as series."""

from __future__ import annotations

import pytest

from mpswatch.documents import MigDevice, Reason
from mpswatch.metrics import families

INFO = "mpswatch_mig_device_info"


def device(index, uuid, profile):
    return MigDevice(
        index=index, uuid=uuid, profile=profile, gpu_instance_id=index, compute_instance_id=0, sm_count=16,
        memory_total_bytes=16 << 30,
    )  # fmt: skip


@pytest.fixture
def published(latest, facts):
    """The series of instances after a poll of a GPU that is told so, and the reason where they are unknown."""

    def publish(**gpu):
        look = facts.gpu_look(gpu=facts.gpu(facts.GPU, **gpu))
        latest.record(facts.poll(gpus=facts.known((look,))))
        found = {family.spec.name: dict(family.samples) for family in families(latest.view())}
        return found[INFO], {labels[2]: labels[3] for labels in found["mpswatch_unknown"]}.get("mig_device_info")

    return publish


def test_each_instance_is_a_series_of_its_gpu_even_where_its_names_are_not_known(published, facts):
    devices = (device(0, "MIG-41b3", "1g.18gb"), device(1, None, None), device(2, None, None))
    assert published(mig_enabled=True, mig_devices=devices) == (
        {
            (facts.GPU, "0", "MIG-41b3", "1g.18gb"): 1,
            (facts.GPU, "1", "", ""): 1,
            (facts.GPU, "2", "", ""): 1,
        },
        None,
    )


def test_where_mig_is_off_there_is_none_and_nothing_is_unknown(published):
    assert published(mig_enabled=False) == ({}, None)


def test_instances_that_could_not_be_listed_are_unknown(published):
    unknown = {"mig_devices": Reason.INSUFFICIENT_PERMISSIONS}
    found = published(mig_enabled=True, mig_devices=None, unknown=unknown)
    assert found == ({}, "insufficient_permissions")
