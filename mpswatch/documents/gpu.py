"""A GPU: what it is, what it was doing, and the driver's list of its processes."""

from __future__ import annotations

from datetime import datetime

from mpswatch.documents.envelope import Document, Envelope
from mpswatch.documents.numbers import Celsius, Number32, Ratio, Reading, Whole
from mpswatch.documents.reasons import Reason


class MigDevice(Document, frozen=True, kw_only=True):
    """An instance of a GPU that MIG has partitioned: named, and left alone. `unknown` maps each None to its `Reason`.

    `index` is the driver's number of it within its GPU, `profile` such as `1g.18gb`. nvidia-smi's report tells no
    profile, and not in every version a uuid.
    """

    index: Number32
    uuid: str | None
    profile: str | None
    gpu_instance_id: Number32 | None
    compute_instance_id: Number32 | None
    sm_count: Number32 | None
    memory_total_bytes: Whole | None
    unknown: dict[str, Reason] = {}


class Gpu(Document, frozen=True, kw_only=True):
    """One device. `unknown` maps each field that is None to its `Reason`.

    `sm_count` is the whole device's number of streaming multiprocessors, from the core count over the
    cores per SM of the compute capability: never what a capped client saw. `mig_devices` are the instances of a GPU
    that is partitioned by MIG, empty where MIG is off and None where that is not known.
    """

    uuid: str
    index: Number32
    name: str
    driver_version: str | None = None
    memory_total_bytes: Whole | None = None
    compute_capability: str | None = None
    sm_count: Number32 | None = None
    mig_enabled: bool | None = None
    mig_devices: tuple[MigDevice, ...] | None = ()
    compute_mode: str | None = None
    unknown: dict[str, Reason] = {}


class Conditions(Document, frozen=True, kw_only=True):
    """What the GPU was doing at one moment: MHz, watts, degrees Celsius, ratios 0-1, bytes.

    `unknown` maps each field that is None to its `Reason`.
    """

    measured_at: datetime
    source: str
    sm_clock_mhz: Number32 | None = None
    memory_clock_mhz: Number32 | None = None
    power_watts: Reading | None = None
    temperature_celsius: Celsius | None = None
    throttle_reasons: tuple[str, ...] | None = None
    utilization_ratio: Ratio | None = None
    memory_used_bytes: Whole | None = None
    memory_free_bytes: Whole | None = None
    unknown: dict[str, Reason] = {}


class ConditionsDuring(Document, frozen=True, kw_only=True):
    """What the GPU was doing while work ran, from `count` looks of the watcher: medians and extremes.

    `unknown` maps each field that is None to its `Reason`; with no look at all every field is `not_recorded`.
    """

    count: Whole
    sm_clock_mhz: Reading | None = None
    sm_clock_mhz_least: Reading | None = None
    sm_clock_mhz_most: Reading | None = None
    power_watts: Reading | None = None
    power_watts_most: Reading | None = None
    temperature_celsius_most: Celsius | None = None
    throttle_reasons: tuple[str, ...] | None = None
    unknown: dict[str, Reason] = {}


class GpuProcess(Document, frozen=True, kw_only=True):
    """One row of the driver's process list, before anybody asked who it is.

    `mps_client` is the driver's own word (NVML's MPS list, `M+C` in nvidia-smi), None where unknown.
    `name` is as the source gave it, already printable; None where the source gives none.
    """

    pid: Number32
    used_memory_bytes: Whole | None
    memory_unknown_reason: Reason | None = None
    mps_client: bool | None = None
    name: str | None = None


class GpuLook(Document, frozen=True, kw_only=True):
    """One GPU at one poll."""

    gpu: Gpu
    processes: Envelope[tuple[GpuProcess, ...]]
    conditions: Conditions
