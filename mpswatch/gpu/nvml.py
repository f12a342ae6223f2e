"""Calls into NVML through `pynvml`: the only module that imports it. Plain values come out, or an exception.

`library.py` turns those exceptions into reasons by `reason_of`; no sentinel gets past `_plain`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import pynvml

from mpswatch.documents import Gpu, MigDevice, Reason
from mpswatch.gpu.multiprocessors import sm_total
from mpswatch.gpu.source import Readings, Row
from mpswatch.names import shown

_REASONS = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: Reason.NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: Reason.NOT_SUPPORTED,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: Reason.NOT_SUPPORTED,
    pynvml.NVML_ERROR_DEPRECATED: Reason.NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_DATA: Reason.NOT_SUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION: Reason.INSUFFICIENT_PERMISSIONS,
    pynvml.NVML_ERROR_OPERATING_SYSTEM: Reason.INSUFFICIENT_PERMISSIONS,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: Reason.NVML_MISSING,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: Reason.NVML_MISSING,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: Reason.NVML_MISMATCH,
    pynvml.NVML_ERROR_GPU_IS_LOST: Reason.GPU_LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED: Reason.GPU_LOST,
    pynvml.NVML_ERROR_GPU_NOT_FOUND: Reason.GPU_LOST,
}

_SENTINELS = {pynvml.NVML_VALUE_NOT_AVAILABLE_uint.value, pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value}

_COMPUTE_MODES = {
    pynvml.NVML_COMPUTEMODE_DEFAULT: "default",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "exclusive_thread",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive_process",
}

# nvml.h, nvmlClocksEventReason*: the names are those of nvidia-smi's report without their prefix
_THROTTLE_REASONS = {
    0x01: "gpu_idle",
    0x02: "applications_clocks_setting",
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clocks_setting",
    0x200: "board_limit",
    0x400: "reliability",
}

# pynvml decodes names as UTF-8 and fails on others; what it wraps gives the bytes.
_process_name = getattr(pynvml.nvmlSystemGetProcessName, "__wrapped__", pynvml.nvmlSystemGetProcessName)


class _Memory(Protocol):
    total: int
    used: int
    free: int


class _Process(Protocol):
    pid: int
    usedGpuMemory: int | None  # noqa: N815 -- pynvml's name
    gpuInstanceId: int  # noqa: N815
    computeInstanceId: int  # noqa: N815


@dataclass(frozen=True, slots=True)
class Device:
    """A handle and what does not change while the library is open. `handle` is None when the device was not found."""

    handle: object | None
    gpu: Gpu


def reason_of(error: Exception) -> Reason:
    """The bounded reason of whatever a call into NVML raised."""
    if isinstance(error, pynvml.NVMLError):
        return _REASONS.get(error.value, Reason.NVML_ERROR)
    if isinstance(error, pynvml.NVMLLibraryMismatchError):
        return Reason.NOT_SUPPORTED
    return Reason.NVML_ERROR


def open_library() -> tuple[Device, ...]:
    """Load and initialise the library, and look up every device once."""
    pynvml.nvmlInit()
    count = pynvml.nvmlDeviceGetCount()
    driver = Readings(reason_of)
    version = driver.take("driver_version", lambda: shown(pynvml.nvmlSystemGetDriverVersion()))
    return tuple(_device(index, version, driver.unknown) for index in range(count))


def close_library() -> None:
    """Give the library back; it stays loaded."""
    Readings(reason_of).take("shutdown", pynvml.nvmlShutdown)


def mig_enabled(handle: object) -> bool:
    """Whether the device is partitioned now."""
    return _plain(pynvml.nvmlDeviceGetMigMode(handle)[0]) == 1


def mig_devices(handle: object) -> tuple[MigDevice, ...]:
    """The instances of a partitioned device, as NVML hands them out; places without one are left out.

    Written after nvml.h and NVIDIA's MIG guide: it has not run on a partitioned device.
    """
    found = []
    for index in range(_plain(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle))):
        try:
            instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_NOT_FOUND:
                raise
            continue
        found.append(_mig_device(index, instance))
    return tuple(found)


def compute_mode(handle: object) -> str:
    """Who may make a context: `default`, `exclusive_process` …"""
    return _COMPUTE_MODES[pynvml.nvmlDeviceGetComputeMode(handle)]


def process_rows(handle: object, total: int | None) -> tuple[list[Row], Reason | None]:
    """The compute processes, and why it is not known which are MPS clients (None when it is).

    The MPS list is asked last, so whoever is in it and not in the first list has just come.
    """
    compute = _list("nvmlDeviceGetComputeRunningProcesses", handle)
    read = Readings(reason_of)
    clients = read.take("mps", lambda: _list("nvmlDeviceGetMPSComputeRunningProcesses", handle))
    managed = None if clients is None else {process.pid for process in clients}
    return [_row(process, managed, total) for process in compute], read.unknown.get("mps")


def _plain(value: int) -> int:
    """`value`, unless it is one of NVML's numbers for "not available"."""
    if value in _SENTINELS:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return value


def _device(index: int, driver: str | None, driver_unknown: dict[str, Reason]) -> Device:
    read = Readings(reason_of, dict(driver_unknown))
    handle = read.take("uuid", lambda: pynvml.nvmlDeviceGetHandleByIndex(index))
    uuid = None if handle is None else read.take("uuid", lambda: shown(pynvml.nvmlDeviceGetUUID(handle)))
    if uuid is None:
        reason = read.unknown["uuid"]
        fields = ("name", "memory_total_bytes", "compute_capability", "sm_count", "mig_enabled", "mig_devices",
                  "compute_mode")  # fmt: skip
        unknown = {**read.unknown, **dict.fromkeys(fields, reason)}
        gpu = Gpu(uuid="", index=index, name="", driver_version=driver, mig_devices=None, unknown=unknown)
        return Device(None, gpu)
    name = read.take("name", lambda: shown(pynvml.nvmlDeviceGetName(handle)))
    capability = read.take("compute_capability", lambda: pynvml.nvmlDeviceGetCudaComputeCapability(handle))
    cores = read.take("sm_count", lambda: _plain(pynvml.nvmlDeviceGetNumGpuCores(handle)))
    total = None if cores is None or capability is None else sm_total(cores, capability)
    if total is None:
        read.unknown.setdefault("sm_count", Reason.NOT_SUPPORTED)
    return Device(
        handle,
        Gpu(
            uuid=uuid,
            index=index,
            name=name or "",
            driver_version=driver,
            memory_total_bytes=read.take("memory_total_bytes", lambda: _plain(_memory(handle).total)),
            compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
            sm_count=total,
            unknown=read.unknown,
        ),
    )


def _mig_device(index: int, instance: object) -> MigDevice:
    read = Readings(reason_of)
    attributes = read.take("sm_count", lambda: pynvml.nvmlDeviceGetAttributes_v2(instance))
    if attributes is None:
        read.unknown["memory_total_bytes"] = read.unknown["sm_count"]
    return MigDevice(
        index=index,
        uuid=read.take("uuid", lambda: shown(pynvml.nvmlDeviceGetUUID(instance))),
        profile=read.take("profile", lambda: _profile(shown(pynvml.nvmlDeviceGetName(instance)))),
        gpu_instance_id=read.take("gpu_instance_id", lambda: _plain(pynvml.nvmlDeviceGetGpuInstanceId(instance))),
        compute_instance_id=read.take(
            "compute_instance_id", lambda: _plain(pynvml.nvmlDeviceGetComputeInstanceId(instance))
        ),
        sm_count=None if attributes is None else read.take("sm_count", lambda: _plain(attributes.multiprocessorCount)),
        memory_total_bytes=None
        if attributes is None
        else read.take("memory_total_bytes", lambda: _plain(attributes.memorySizeMB) << 20),
        unknown=read.unknown,
    )


def _profile(name: str) -> str:
    """The end of an instance's name: `1g.18gb` of `NVIDIA H200 MIG 1g.18gb`."""
    _, mig, profile = name.rpartition(" MIG ")
    if not mig:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return profile


def _memory(handle: object) -> _Memory:
    """Total, used and free bytes. The second version leaves the driver's own share out of `used`."""
    try:
        memory: _Memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except pynvml.NVMLError as error:
        if error.value not in {pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH}:
            raise
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return memory


_STRUCTURES = (("_v3", pynvml.c_nvmlProcessInfo_v3_t), ("_v2", pynvml.c_nvmlProcessInfo_v2_t))
_ROOM = 64
_room: dict[str, int] = {}


def _list(name: str, handle: object) -> Sequence[_Process]:
    """One process list. It can outgrow the room made for it between two calls, and be of an older version.

    pynvml's own function asks twice, for the number first, and the driver goes through its processes each time; here
    there is room for as many as lately and some more.
    """
    for version, structure in _STRUCTURES:
        try:
            function = getattr(pynvml.nvmlLib, name + version)
        except AttributeError:
            continue
        for _ in range(3):
            room = _room.get(name, _ROOM)
            count, found = ctypes.c_uint(room), (structure * room)()
            said = function(handle, ctypes.byref(count), found)
            if said == pynvml.NVML_SUCCESS:
                processes: Sequence[_Process] = found[: count.value]
                return processes
            if said != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                break
            _room[name] = count.value * 2 + _ROOM
        if said != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise pynvml.NVMLError(said)
    raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


def _row(process: _Process, managed: set[int] | None, total: int | None) -> Row:
    memory, reason = process.usedGpuMemory, None
    if memory is None or memory in _SENTINELS:
        memory, reason = None, Reason.NOT_SUPPORTED
    elif total is not None and memory > total:
        memory, reason = None, Reason.NVML_ERROR
    return Row(
        pid=process.pid,
        used_memory_bytes=memory,
        memory_unknown_reason=reason,
        instance=(process.gpuInstanceId, process.computeInstanceId),
        mps_client=None if managed is None else process.pid in managed,
        name=_name(process.pid),
    )


def _name(pid: int) -> str | None:
    try:
        name: str | bytes | None = _process_name(pid)
    except Exception:  # noqa: BLE001 -- a vendor's library: without its name a process counts all the same
        return None
    return shown(name) if name else None


def _throttle_reasons(handle: object) -> tuple[str, ...]:
    try:
        bits = pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except pynvml.NVMLError as error:
        if error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
        bits = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)  # its name before driver 535
    bits = _plain(bits)
    return tuple(_THROTTLE_REASONS.get(1 << n, f"bit_{n}") for n in range(64) if bits >> n & 1)


def _utilization(handle: object) -> float:
    percent: int = _plain(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    if percent > 100:
        raise ValueError(f"utilization of {percent} percent")
    return percent / 100


FIELDS: Mapping[str, Callable[[object], object]] = {
    "sm_clock_mhz": lambda handle: _plain(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
    "memory_clock_mhz": lambda handle: _plain(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)),
    "power_watts": lambda handle: _plain(pynvml.nvmlDeviceGetPowerUsage(handle)) / 1000,
    "temperature_celsius": lambda handle: _plain(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
    "throttle_reasons": _throttle_reasons,
    "utilization_ratio": _utilization,
}
"""How each field of `Conditions` is read, but for memory."""


def conditions(handle: object) -> tuple[dict[str, object], dict[str, Reason]]:
    """The fields of `Conditions`, None where one failed, and the reasons of those."""
    read = Readings(reason_of)
    found = {name: read.take(name, partial(ask, handle)) for name, ask in FIELDS.items()}
    memory = read.take("memory", partial(_memory, handle))
    reason = read.unknown.pop("memory", Reason.NVML_ERROR)
    for name, attribute in (("memory_used_bytes", "used"), ("memory_free_bytes", "free")):
        if memory is None:
            read.unknown[name] = reason
        else:
            found[name] = read.take(name, partial(_plain, getattr(memory, attribute)))
    return found, read.unknown
