"""NVML through `pynvml`: the only module that imports it, and no error or sentinel of it leaves here.

The library is loaded and initialised at the first look and stays open: both process lists then cost 1 ms with 47
processes, where nvidia-smi takes 53.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml

from mpswatch.documents import Conditions, Envelope, Gpu, GpuLook, GpuProcess, Reason
from mpswatch.gpu import source
from mpswatch.gpu.multiprocessors import sm_total
from mpswatch.gpu.source import GpuError, Readings, Row
from mpswatch.names import shown
from mpswatch.proc import Processes

NAME = "nvml"
REOPEN_SECONDS = 60.0
"""A lost GPU comes back only to a library opened anew; with a GPU missing that can take seconds."""

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

_REMEDIES = {
    Reason.NVML_MISSING: "install the NVIDIA driver, or set gpu.source to nvidia-smi",
    Reason.NVML_MISMATCH: "the driver was changed under a running library: reboot, or reload the driver and restart",
    Reason.GPU_LOST: "see the kernel's log for Xid messages; the GPU needs a reset",
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


def reason_of(error: Exception) -> Reason:
    """The bounded reason of whatever a call into NVML raised."""
    if isinstance(error, pynvml.NVMLError):
        return _REASONS.get(error.value, Reason.NVML_ERROR)
    if isinstance(error, pynvml.NVMLLibraryMismatchError):
        return Reason.NOT_SUPPORTED
    return Reason.NVML_ERROR


@dataclass(frozen=True, slots=True)
class _Device:
    """A handle and what does not change while the library is open. `handle` is None when the device was not found."""

    handle: Any
    gpu: Gpu


class NvmlSource:
    """The driver asked through its library. Safe from several threads; one at a time is inside."""

    name = NAME

    def __init__(self, processes: Processes | None = None, *, reopen_seconds: float = REOPEN_SECONDS) -> None:
        self._processes = processes or Processes()
        self._reopen_seconds = reopen_seconds
        self._lock = threading.Lock()
        self._devices: tuple[_Device, ...] | None = None
        self._opened_at = 0.0
        self._troubled = False

    def look(self) -> tuple[GpuLook, ...]:
        """Every GPU. Raises `GpuError` when the library gives none at all."""
        with self._lock:
            devices = self._open()
            blind = self._processes.sees_host_pids() is not True
            return tuple(self._one(device, blind=blind) for device in devices)

    def conditions(self, uuid: str) -> Conditions:
        """Conditions of one GPU. Raises `GpuError` (`no_gpu`) when there is none of that uuid."""
        with self._lock:
            for device in self._open():
                if device.gpu.uuid == uuid:
                    return self._conditions(device, mig=device.gpu.mig_enabled)
        raise GpuError(Reason.NO_GPU, f"the driver knows no GPU {uuid}")

    def _open(self) -> tuple[_Device, ...]:
        again = self._troubled and time.monotonic() - self._opened_at >= self._reopen_seconds
        if self._devices is not None and not again:
            return self._devices
        self._close()
        try:
            pynvml.nvmlInit()
            self._opened_at = time.monotonic()
            count = pynvml.nvmlDeviceGetCount()
            driver = Readings(reason_of)
            version = driver.take("driver_version", pynvml.nvmlSystemGetDriverVersion)
            devices = tuple(_device(index, version, driver.unknown) for index in range(count))
        except Exception as error:  # noqa: BLE001 -- a vendor's library: whatever comes out of it stays here
            raise _failed(error) from None
        if not devices:
            raise GpuError(Reason.NO_GPU, "the driver knows no GPU")
        self._devices = devices
        self._troubled = any(device.handle is None for device in devices)
        return devices

    def _close(self) -> None:
        if self._devices is not None:
            self._devices = None
            Readings(reason_of).take("shutdown", pynvml.nvmlShutdown)

    def _one(self, device: _Device, *, blind: bool) -> GpuLook:
        if device.handle is None:
            reason = device.gpu.unknown["uuid"]
            processes = source.processes_unknown(reason, source=NAME, detail="the driver does not hand out this GPU")
            return GpuLook(
                gpu=device.gpu, processes=processes, conditions=source.conditions_unknown(reason, source=NAME)
            )
        gpu = self._gpu(device)
        total = gpu.memory_total_bytes
        return GpuLook(
            gpu=gpu,
            processes=self._listed(device.handle, total, blind=blind),
            conditions=self._conditions(device, mig=gpu.mig_enabled),
        )

    def _gpu(self, device: _Device) -> Gpu:
        """The facts that may change while the library is open, beside those that may not."""
        fixed, handle = device.gpu, device.handle
        read = Readings(reason_of, dict(fixed.unknown))
        mig = read.take("mig_enabled", lambda: _plain(pynvml.nvmlDeviceGetMigMode(handle)[0]) == 1)
        mode = read.take("compute_mode", lambda: _COMPUTE_MODES[pynvml.nvmlDeviceGetComputeMode(handle)])
        return Gpu(
            uuid=fixed.uuid,
            index=fixed.index,
            name=fixed.name,
            driver_version=fixed.driver_version,
            memory_total_bytes=fixed.memory_total_bytes,
            compute_capability=fixed.compute_capability,
            sm_count=fixed.sm_count,
            mig_enabled=mig,
            compute_mode=mode,
            unknown=read.unknown,
        )

    def _listed(self, handle: Any, total: int | None, *, blind: bool) -> Envelope[tuple[GpuProcess, ...]]:
        """Both lists. The MPS list is asked last, so whoever is in it and not in the first list has just come."""
        try:
            compute = _list("nvmlDeviceGetComputeRunningProcesses", handle)
            mps = Readings(reason_of)
            clients = mps.take("mps_list", lambda: _list("nvmlDeviceGetMPSComputeRunningProcesses", handle))
            managed = None if clients is None else {process.pid for process in clients}
            value = source.merged(_row(process, managed, total) for process in compute)
        except Exception as error:  # noqa: BLE001 -- a vendor's library: whatever comes out of it stays here
            reason = self._noted(reason_of(error))
            return source.processes_unknown(reason, source=NAME, detail=str(error))
        evidence = {"basis": "nvmlDeviceGetComputeRunningProcesses and nvmlDeviceGetMPSComputeRunningProcesses"}
        if managed is None:
            evidence["mps_list_unknown"] = mps.unknown["mps_list"].value
        return source.processes_known(value, source=NAME, state="measured", evidence=evidence, blind=blind)

    def _conditions(self, device: _Device, *, mig: bool | None) -> Conditions:
        handle = device.handle
        if handle is None:
            return source.conditions_unknown(device.gpu.unknown["uuid"], source=NAME)
        read = Readings(reason_of)
        at = source.now()
        memory = read.take("memory", lambda: _memory(handle))
        found = {
            name: read.take(name, lambda function=function: function(handle)) for name, function in _FIELDS.items()
        }
        reason = read.unknown.pop("memory", None)
        for name, attribute in (("memory_used_bytes", "used"), ("memory_free_bytes", "free")):
            if memory is None:
                read.unknown[name] = reason or Reason.NVML_ERROR
            else:
                found[name] = read.take(name, lambda attribute=attribute: _plain(getattr(memory, attribute)))
        if mig and read.unknown.get("utilization_ratio") is Reason.NOT_SUPPORTED:
            read.unknown["utilization_ratio"] = Reason.MIG
        for said in read.unknown.values():
            self._noted(said)
        return Conditions(measured_at=at, source=NAME, unknown=read.unknown, **found)

    def _noted(self, reason: Reason) -> Reason:
        """Remember that the library has to be opened anew."""
        if reason in {Reason.GPU_LOST, Reason.NVML_ERROR, Reason.NVML_MISMATCH}:
            self._troubled = True
        return reason


def _failed(error: Exception) -> GpuError:
    reason = reason_of(error)
    if reason is Reason.NOT_SUPPORTED:  # a library that lacks the first functions of all is another version's
        reason = Reason.NVML_MISMATCH
    return GpuError(reason, f"NVML: {error}", _REMEDIES.get(reason))


def _plain(value: int) -> int:
    """`value`, unless it is one of NVML's numbers for "not available"."""
    if value in _SENTINELS:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return value


def _device(index: int, driver: str | None, driver_unknown: dict[str, Reason]) -> _Device:
    read = Readings(reason_of, dict(driver_unknown))
    handle = read.take("uuid", lambda: pynvml.nvmlDeviceGetHandleByIndex(index))
    uuid = None if handle is None else read.take("uuid", lambda: shown(pynvml.nvmlDeviceGetUUID(handle)))
    if uuid is None:
        reason = read.unknown["uuid"]
        fields = ("name", "memory_total_bytes", "compute_capability", "sm_count", "mig_enabled", "compute_mode")
        unknown = {**read.unknown, **dict.fromkeys(fields, reason)}
        return _Device(None, Gpu(uuid="", index=index, name="", driver_version=driver, unknown=unknown))
    name = read.take("name", lambda: shown(pynvml.nvmlDeviceGetName(handle)))
    capability = read.take("compute_capability", lambda: pynvml.nvmlDeviceGetCudaComputeCapability(handle))
    cores = read.take("sm_count", lambda: _plain(pynvml.nvmlDeviceGetNumGpuCores(handle)))
    total = None if cores is None or capability is None else sm_total(cores, capability)
    if total is None:
        read.unknown.setdefault("sm_count", Reason.NOT_SUPPORTED)
    return _Device(
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


def _memory(handle: Any) -> Any:
    """Total, used and free bytes. The second version leaves the driver's own share out of `used`."""
    try:
        return pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    except pynvml.NVMLError as error:
        if error.value not in {pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH}:
            raise
        return pynvml.nvmlDeviceGetMemoryInfo(handle)


def _list(name: str, handle: Any) -> list[Any]:
    """One process list. It can outgrow the room made for it between two calls, and be of an older version."""
    for version in ("_v3", "_v2"):
        for attempt in (1, 2, 3):
            try:
                found: list[Any] = getattr(pynvml, name + version)(handle)
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND and version == "_v3":
                    break
                if error.value == pynvml.NVML_ERROR_INSUFFICIENT_SIZE and attempt < 3:
                    continue
                raise
            return found
    raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


def _row(process: Any, managed: set[int] | None, total: int | None) -> Row:
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
    name: str | bytes | None = Readings(reason_of).take("name", lambda: _process_name(pid))
    return shown(name) if name else None


def _throttle_reasons(handle: Any) -> tuple[str, ...]:
    try:
        bits = pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except pynvml.NVMLError as error:
        if error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
        bits = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)  # its name before driver 535
    bits = _plain(bits)
    return tuple(_THROTTLE_REASONS.get(1 << n, f"bit_{n}") for n in range(64) if bits >> n & 1)


def _utilization(handle: Any) -> float:
    percent = _plain(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    if percent > 100:
        raise ValueError(f"utilization of {percent} percent")
    return percent / 100


_FIELDS: dict[str, Callable[[Any], Any]] = {
    "sm_clock_mhz": lambda handle: _plain(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
    "memory_clock_mhz": lambda handle: _plain(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)),
    "power_watts": lambda handle: _plain(pynvml.nvmlDeviceGetPowerUsage(handle)) / 1000,
    "temperature_celsius": lambda handle: _plain(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
    "throttle_reasons": _throttle_reasons,
    "utilization_ratio": _utilization,
}
