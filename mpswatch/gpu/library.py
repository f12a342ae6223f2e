"""NVML as a source: opened at the first look and kept open, with whatever goes wrong in it turned into a reason.

Both process lists cost 1 ms with 47 processes on an H200, where nvidia-smi takes 53.
"""

from __future__ import annotations

import threading
import time

import msgspec

from mpswatch.documents import Conditions, Envelope, Gpu, GpuLook, GpuProcess, Reason
from mpswatch.gpu import mig, nvml, source
from mpswatch.gpu.source import GpuError, Readings
from mpswatch.proc import Processes

NAME = "nvml"
REOPEN_SECONDS = 60.0
"""A lost GPU comes back only to a library opened anew; with a GPU missing that can take seconds."""

_REMEDIES = {
    Reason.NVML_MISSING: "install the NVIDIA driver, or set gpu.source to nvidia-smi",
    Reason.NVML_MISMATCH: "the driver was changed under a running library: reboot, or reload the driver and restart",
    Reason.GPU_LOST: "see the kernel's log for Xid messages; the GPU needs a reset",
}

_TROUBLE = {Reason.GPU_LOST, Reason.NVML_ERROR, Reason.NVML_MISMATCH}


class NvmlSource:
    """The driver asked through its library. Safe from several threads; one at a time is inside."""

    name = NAME

    def __init__(self, processes: Processes | None = None, *, reopen_seconds: float = REOPEN_SECONDS) -> None:
        self._processes = processes or Processes()
        self._reopen_seconds = reopen_seconds
        self._lock = threading.Lock()
        self._devices: tuple[nvml.Device, ...] | None = None
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
                if device.handle is not None and device.gpu.uuid == uuid:
                    return self._conditions(device.handle, partitioned=_gpu(device).mig_enabled)
        raise GpuError(Reason.NO_GPU, f"the driver knows no GPU {uuid}")

    def _open(self) -> tuple[nvml.Device, ...]:
        again = self._troubled and time.monotonic() - self._opened_at >= self._reopen_seconds
        if self._devices is not None and not again:
            return self._devices
        if self._devices is not None:
            self._devices = None
            nvml.close_library()
        try:
            devices = nvml.open_library()
        except Exception as error:  # noqa: BLE001 -- a vendor's library: whatever comes out of it stays here
            raise _failed(error) from None
        if not devices:
            nvml.close_library()
            raise GpuError(Reason.NO_GPU, "the driver knows no GPU")
        self._devices = devices
        self._opened_at = time.monotonic()
        self._troubled = any(device.handle is None for device in devices)
        return devices

    def _one(self, device: nvml.Device, *, blind: bool) -> GpuLook:
        if device.handle is None:
            reason = device.gpu.unknown["uuid"]
            detail = "the driver does not hand out this GPU"
            return GpuLook(
                gpu=device.gpu,
                processes=source.processes_unknown(reason, source=NAME, detail=detail),
                conditions=source.conditions_unknown(reason, source=NAME),
            )
        gpu = _gpu(device)
        return GpuLook(
            gpu=gpu,
            processes=self._listed(device.handle, gpu.memory_total_bytes, blind=blind),
            conditions=self._conditions(device.handle, partitioned=gpu.mig_enabled),
        )

    def _listed(self, handle: object, total: int | None, *, blind: bool) -> Envelope[tuple[GpuProcess, ...]]:
        try:
            rows, mps_unknown = nvml.process_rows(handle, total)
            value = source.merged(rows)
        except Exception as error:  # noqa: BLE001 -- a vendor's library: whatever comes out of it stays here
            reason = nvml.reason_of(error)
            self._troubled = self._troubled or reason in _TROUBLE
            return source.processes_unknown(reason, source=NAME, detail=str(error))
        evidence = {"basis": "nvmlDeviceGetComputeRunningProcesses and nvmlDeviceGetMPSComputeRunningProcesses"}
        if mps_unknown is not None:
            evidence["mps_list_unknown"] = mps_unknown.value
        return source.processes_known(value, source=NAME, state="measured", evidence=evidence, blind=blind)

    def _conditions(self, handle: object, *, partitioned: bool | None) -> Conditions:
        at = source.now()
        found, unknown = nvml.conditions(handle)
        if partitioned and unknown.get("utilization_ratio") is Reason.NOT_SUPPORTED:
            unknown["utilization_ratio"] = Reason.MIG
        self._troubled = self._troubled or not _TROUBLE.isdisjoint(unknown.values())
        fields = {"measured_at": at, "source": NAME, "unknown": unknown, **found}
        return msgspec.convert(fields, Conditions)


def _gpu(device: nvml.Device) -> Gpu:
    """The device with the facts that may change while the library is open."""
    read = Readings(nvml.reason_of, dict(device.gpu.unknown))
    enabled = read.take("mig_enabled", lambda: nvml.mig_enabled(device.handle))
    devices = mig.named(read, lambda: nvml.mig_devices(device.handle), enabled=enabled)
    mode = read.take("compute_mode", lambda: nvml.compute_mode(device.handle))
    return msgspec.structs.replace(
        device.gpu, mig_enabled=enabled, mig_devices=devices, compute_mode=mode, unknown=read.unknown
    )


def _failed(error: Exception) -> GpuError:
    reason = nvml.reason_of(error)
    if reason is Reason.NOT_SUPPORTED:  # a library that lacks the first functions of all is another version's
        reason = Reason.NVML_MISMATCH
    return GpuError(reason, f"NVML: {error}", _REMEDIES.get(reason))
