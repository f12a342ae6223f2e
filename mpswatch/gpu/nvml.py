"""What is asked of NVML. Plain values come out, or an exception.

`library.py` turns those exceptions into reasons by `reason_of`; no sentinel gets past `_plain`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from mpswatch.documents import Gpu, Reason
from mpswatch.gpu import binding
from mpswatch.gpu.binding import NvmlError, call, number, text
from mpswatch.gpu.multiprocessors import sm_total
from mpswatch.gpu.source import Readings, Row
from mpswatch.names import shown

_REASONS = {
    binding.NOT_SUPPORTED: Reason.NOT_SUPPORTED,
    binding.FUNCTION_NOT_FOUND: Reason.NOT_SUPPORTED,
    binding.ARGUMENT_VERSION_MISMATCH: Reason.NOT_SUPPORTED,
    binding.DEPRECATED: Reason.NOT_SUPPORTED,
    binding.NO_DATA: Reason.NOT_SUPPORTED,
    binding.NO_PERMISSION: Reason.INSUFFICIENT_PERMISSIONS,
    binding.OPERATING_SYSTEM: Reason.INSUFFICIENT_PERMISSIONS,
    binding.LIBRARY_NOT_FOUND: Reason.NVML_MISSING,
    binding.DRIVER_NOT_LOADED: Reason.NVML_MISSING,
    binding.LIB_RM_VERSION_MISMATCH: Reason.NVML_MISMATCH,
    binding.GPU_IS_LOST: Reason.GPU_LOST,
    binding.RESET_REQUIRED: Reason.GPU_LOST,
    binding.GPU_NOT_FOUND: Reason.GPU_LOST,
}

_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}

_SM_CLOCK, _MEMORY_CLOCK, _AT_THE_GPU = 1, 2, 0

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


@dataclass(frozen=True, slots=True)
class Device:
    """A handle and what does not change while the library is open. `handle` is None when the device was not found."""

    handle: object | None
    gpu: Gpu


def reason_of(error: Exception) -> Reason:
    """The bounded reason of whatever a call into NVML raised."""
    return _REASONS.get(error.code, Reason.NVML_ERROR) if isinstance(error, NvmlError) else Reason.NVML_ERROR


def open_library() -> tuple[Device, ...]:
    """Load and initialise the library, and look up every device once."""
    call("nvmlInitWithFlags", 0)
    count = number("nvmlDeviceGetCount_v2")
    driver = Readings(reason_of)
    version = driver.take("driver_version", lambda: shown(text("nvmlSystemGetDriverVersion")))
    return tuple(_device(index, version, driver.unknown) for index in range(count))


def close_library() -> None:
    """Give the library back; it stays loaded."""
    Readings(reason_of).take("shutdown", lambda: call("nvmlShutdown"))


def mig_enabled(handle: object) -> bool:
    """Whether the device is partitioned now."""
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    call("nvmlDeviceGetMigMode", handle, ctypes.byref(current), ctypes.byref(pending))
    return _plain(current.value) == 1


def compute_mode(handle: object) -> str:
    """Who may make a context: `default`, `exclusive_process` …"""
    return _COMPUTE_MODES[number("nvmlDeviceGetComputeMode", handle)]


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
    if value in binding.NOT_AVAILABLE:
        raise NvmlError(binding.NOT_SUPPORTED, "the value", "not available")
    return value


def _device(index: int, driver: str | None, driver_unknown: dict[str, Reason]) -> Device:
    read = Readings(reason_of, dict(driver_unknown))
    handle = read.take("uuid", lambda: _handle(index))
    uuid = None if handle is None else read.take("uuid", lambda: shown(text("nvmlDeviceGetUUID", handle)))
    if uuid is None:
        reason = read.unknown["uuid"]
        fields = ("name", "memory_total_bytes", "compute_capability", "sm_count", "mig_enabled", "compute_mode")
        unknown = {**read.unknown, **dict.fromkeys(fields, reason)}
        return Device(None, Gpu(uuid="", index=index, name="", driver_version=driver, unknown=unknown))
    name = read.take("name", lambda: shown(text("nvmlDeviceGetName", handle)))
    capability = read.take("compute_capability", lambda: _capability(handle))
    cores = read.take("sm_count", lambda: _plain(number("nvmlDeviceGetNumGpuCores", handle)))
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


def _handle(index: int) -> object:
    handle = ctypes.c_void_p()
    call("nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(handle))
    return handle


def _capability(handle: object) -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    call("nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def _memory(handle: object) -> binding.Memory | binding.MemoryV2:
    """Total, used and free bytes. The second version leaves the driver's own share out of `used`."""
    memory = binding.MemoryV2(version=ctypes.sizeof(binding.MemoryV2) | 2 << 24)
    try:
        call("nvmlDeviceGetMemoryInfo_v2", handle, ctypes.byref(memory))
    except NvmlError as error:
        if error.code not in {binding.FUNCTION_NOT_FOUND, binding.ARGUMENT_VERSION_MISMATCH}:
            raise
        older = binding.Memory()
        call("nvmlDeviceGetMemoryInfo", handle, ctypes.byref(older))
        return older
    return memory


_ROOM = 64
_room: dict[str, int] = {}


def _list(function: str, handle: object) -> Sequence[binding.ProcessInfo]:
    """One process list. It can outgrow the room made for it between two calls, and be of an older version.

    The driver goes through its processes at each call, so the number is not asked first: there is room for as many
    as lately and some more.
    """
    try:
        return _listed(f"{function}_v3", handle)
    except NvmlError as error:
        if error.code != binding.FUNCTION_NOT_FOUND:
            raise
        return _listed(f"{function}_v2", handle)


def _listed(function: str, handle: object) -> Sequence[binding.ProcessInfo]:
    for attempt in range(3):
        room = _room.get(function, _ROOM)
        count, found = ctypes.c_uint(room), (binding.ProcessInfo * room)()
        try:
            call(function, handle, ctypes.byref(count), found)
        except NvmlError as error:
            if error.code != binding.INSUFFICIENT_SIZE or attempt == 2:
                raise
            _room[function] = count.value * 2 + _ROOM
        else:
            break
    return found[: count.value]


def _row(process: binding.ProcessInfo, managed: set[int] | None, total: int | None) -> Row:
    memory: int | None = process.used_memory
    reason = None
    if memory in binding.NOT_AVAILABLE:
        memory, reason = None, Reason.NOT_SUPPORTED
    elif total is not None and process.used_memory > total:
        memory, reason = None, Reason.NVML_ERROR
    return Row(
        pid=process.pid,
        used_memory_bytes=memory,
        memory_unknown_reason=reason,
        instance=(process.gpu_instance, process.compute_instance),
        mps_client=None if managed is None else process.pid in managed,
        name=_name(process.pid),
    )


def _name(pid: int) -> str | None:
    try:
        name = text("nvmlSystemGetProcessName", pid, size=1024)
    except NvmlError:  # without its name a process counts all the same
        return None
    return shown(name) if name else None


def _throttle_reasons(handle: object) -> tuple[str, ...]:
    wide = partial(number, room=ctypes.c_ulonglong)
    try:
        bits = wide("nvmlDeviceGetCurrentClocksEventReasons", handle)
    except NvmlError as error:
        if error.code != binding.FUNCTION_NOT_FOUND:
            raise
        bits = wide("nvmlDeviceGetCurrentClocksThrottleReasons", handle)  # its name before driver 535
    bits = _plain(bits)
    return tuple(_THROTTLE_REASONS.get(1 << n, f"bit_{n}") for n in range(64) if bits >> n & 1)


def _utilization(handle: object) -> float:
    rates = binding.Utilization()
    call("nvmlDeviceGetUtilizationRates", handle, ctypes.byref(rates))
    percent = _plain(rates.gpu)
    if percent > 100:
        raise ValueError(f"utilization of {percent} percent")
    return percent / 100


FIELDS: Mapping[str, Callable[[object], object]] = {
    "sm_clock_mhz": lambda handle: _plain(number("nvmlDeviceGetClockInfo", handle, _SM_CLOCK)),
    "memory_clock_mhz": lambda handle: _plain(number("nvmlDeviceGetClockInfo", handle, _MEMORY_CLOCK)),
    "power_watts": lambda handle: _plain(number("nvmlDeviceGetPowerUsage", handle)) / 1000,
    "temperature_celsius": lambda handle: _plain(number("nvmlDeviceGetTemperature", handle, _AT_THE_GPU)),
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
