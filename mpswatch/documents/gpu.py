"""A GPU: what it is, what it was doing, and the driver's list of its processes."""

from __future__ import annotations

from datetime import datetime

from mpswatch.documents.envelope import Document, Envelope
from mpswatch.documents.reasons import Reason


class MigDevice(Document, frozen=True, kw_only=True):
    """An instance of a GPU that MIG has partitioned: named, and left alone. `unknown` maps each None to its `Reason`.

    `index` is the driver's number of it within its GPU, `profile` such as `1g.18gb`. nvidia-smi's report tells no
    profile, and not in every version a uuid.
    """

    index: int
    uuid: str | None
    profile: str | None
    gpu_instance_id: int | None
    compute_instance_id: int | None
    sm_count: int | None
    memory_total_bytes: int | None
    unknown: dict[str, Reason] = {}


class Gpu(Document, frozen=True, kw_only=True):
    """One device. `unknown` maps each field that is None to its `Reason`.

    `sm_count` is the whole device's number of streaming multiprocessors, from the core count over the
    cores per SM of the compute capability: never what a capped client saw. `mig_devices` are the instances of a GPU
    that is partitioned by MIG, empty where MIG is off and None where that is not known.
    """

    uuid: str
    index: int
    name: str
    driver_version: str | None = None
    memory_total_bytes: int | None = None
    compute_capability: str | None = None
    sm_count: int | None = None
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
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    utilization_ratio: float | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    unknown: dict[str, Reason] = {}


class ConditionsDuring(Document, frozen=True, kw_only=True):
    """What the GPU was doing while work ran, from `count` looks of the watcher: medians and extremes.

    `unknown` maps each field that is None to its `Reason`; with no look at all every field is `not_recorded`.
    """

    count: int
    sm_clock_mhz: float | None = None
    sm_clock_mhz_least: float | None = None
    sm_clock_mhz_most: float | None = None
    power_watts: float | None = None
    power_watts_most: float | None = None
    temperature_celsius_most: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    unknown: dict[str, Reason] = {}


class GpuProcess(Document, frozen=True, kw_only=True):
    """One row of the driver's process list, before anybody asked who it is.

    `mps_client` is the driver's own word (NVML's MPS list, `M+C` in nvidia-smi), None where unknown.
    `name` is as the source gave it, already printable; None where the source gives none.
    """

    pid: int
    used_memory_bytes: int | None
    memory_unknown_reason: Reason | None = None
    mps_client: bool | None = None
    name: str | None = None


class GpuLook(Document, frozen=True, kw_only=True):
    """One GPU at one poll."""

    gpu: Gpu
    processes: Envelope[tuple[GpuProcess, ...]]
    conditions: Conditions
