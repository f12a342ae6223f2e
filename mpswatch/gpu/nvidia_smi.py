"""nvidia-smi's report as the second source: what NVML says, as far as it is printed, at fifty times the cost."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mpswatch.documents import Conditions, Envelope, Gpu, GpuLook, GpuProcess, Reason, State
from mpswatch.errors import MpswatchError
from mpswatch.gpu import mig, report, source
from mpswatch.gpu.source import GpuError, Readings, Row
from mpswatch.names import clip, printable, shown
from mpswatch.proc import Processes
from mpswatch.process.ask import ProgramLate, ProgramMissing, ProgramTooMuch, ProgramUnusable, ask

if TYPE_CHECKING:
    import xml.etree.ElementTree as ET

NAME = "nvidia-smi"
LIMIT = 16 << 20
"""Longest report read, in bytes: 28 kB a GPU and 300 a process were seen."""

# What it prints in place of a report, and its exit status (nvidia-smi(1), "RETURN VALUE")
_FAILURES = (
    (b"version mismatch", Reason.NVML_MISMATCH),
    (b"No devices were found", Reason.NO_GPU),
    (b"GPU is lost", Reason.GPU_LOST),
    (b"couldn't communicate with the NVIDIA driver", Reason.NVML_MISSING),
    (b"couldn't find libnvidia-ml", Reason.NVML_MISSING),
    (b"Insufficient Permissions", Reason.INSUFFICIENT_PERMISSIONS),
)
_STATUSES = {
    4: Reason.INSUFFICIENT_PERMISSIONS,
    6: Reason.NO_GPU,
    9: Reason.NVML_MISSING,
    12: Reason.NVML_MISSING,
    15: Reason.GPU_LOST,
    18: Reason.NVML_MISMATCH,
}


class NvidiaSmiSource:
    """The driver asked through its program; safe from several threads."""

    name = NAME

    def __init__(
        self, program: str, *, deadline: float, simulated: bool = False, processes: Processes | None = None
    ) -> None:
        self._program = program
        self._deadline = deadline
        self._state: State = "simulated" if simulated else "measured"
        self._processes = processes or Processes()

    def look(self) -> tuple[GpuLook, ...]:
        """Every GPU of the report. Raises `GpuError` when there is no report."""
        root = self._report()
        # A rehearsal's processes are listed by its own program, which sees what we see.
        blind = self._state == "measured" and self._processes.sees_host_pids() is not True
        driver = Readings(reason_of)
        version = driver.take("driver_version", lambda: shown(report.text(root, "driver_version")))
        looks = tuple(
            _one(index, element, version, driver.unknown, state=self._state, blind=blind)
            for index, element in enumerate(root.findall("gpu"))
        )
        if not looks:
            raise GpuError(Reason.NO_GPU, "nvidia-smi reports no GPU")
        return looks

    def conditions(self, uuid: str) -> Conditions:
        """Conditions of one GPU. Raises `GpuError` (`no_gpu`) when the report has none of that uuid."""
        for element in self._report().findall("gpu"):
            if (element.findtext("uuid") or "").strip() == uuid:
                return _conditions(element, partitioned=_mig_enabled(element, Readings(reason_of)))
        raise GpuError(Reason.NO_GPU, f"nvidia-smi reports no GPU {uuid}")

    def _report(self) -> ET.Element:
        environment = {key: value for key, value in os.environ.items() if key != "NOTIFY_SOCKET"} | {"LC_ALL": "C"}
        try:
            answer = ask([self._program, "-q", "-x"], deadline=self._deadline, limit=LIMIT, env=environment)
        except ProgramMissing as error:
            raise GpuError(Reason.NVIDIA_SMI_MISSING, error.detail, "install the driver's utilities") from None
        except ProgramLate as error:
            raise GpuError(Reason.SOURCE_STUCK, error.detail) from None
        except ProgramTooMuch as error:
            raise GpuError(Reason.NVIDIA_SMI_NONSENSE, error.detail) from None
        except ProgramUnusable as error:
            raise GpuError(Reason.NVIDIA_SMI_ERROR, error.detail) from None
        if answer.returncode == 0:
            try:
                return report.parse(answer.stdout)
            except GpuError as error:
                raise _failed(answer.stdout + answer.stderr) or error from None
        said = answer.stdout + answer.stderr
        words = clip(printable(said.strip()[:600]), 200)
        reason = _STATUSES.get(answer.returncode, Reason.NVIDIA_SMI_ERROR)
        raise _failed(said) or GpuError(reason, f"nvidia-smi ended with status {answer.returncode}: {words}")


def reason_of(error: Exception) -> Reason:
    """The bounded reason of a field that could not be read."""
    return error.reason if isinstance(error, MpswatchError) else Reason.NVIDIA_SMI_NONSENSE


def _failed(said: bytes) -> GpuError | None:
    for words, reason in _FAILURES:
        if words in said[:4096]:
            return GpuError(reason, f"nvidia-smi: {clip(printable(said.strip()[:600]), 200)}")
    return None


def _mig_enabled(element: ET.Element, read: Readings) -> bool | None:
    return read.take("mig_enabled", lambda: report.text(element, "mig_mode/current_mig") == "Enabled")


def _one(
    index: int, element: ET.Element, driver: str | None, driver_unknown: dict[str, Reason], *, state: State, blind: bool
) -> GpuLook:
    read = Readings(reason_of, dict(driver_unknown))
    enabled = _mig_enabled(element, read)
    total = read.take("memory_total_bytes", lambda: report.mebibytes(element, "fb_memory_usage/total"))
    sm_count = None
    if state == "simulated":  # the real report tells neither cores nor multiprocessors
        sm_count = read.take("sm_count", lambda: report.whole(element, "rehearsal_sm_count", ""))
    else:
        read.unknown["sm_count"] = Reason.NOT_SUPPORTED
    gpu = Gpu(
        uuid=read.take("uuid", lambda: shown(report.text(element, "uuid"))) or "",
        index=index,
        name=read.take("name", lambda: shown(report.text(element, "product_name"))) or "",
        driver_version=driver,
        memory_total_bytes=total,
        compute_capability=None,
        sm_count=sm_count,
        mig_enabled=enabled,
        mig_devices=mig.named(read, lambda: mig.of_report(element, reason_of), enabled=enabled),
        compute_mode=read.take("compute_mode", lambda: shown(report.text(element, "compute_mode")).lower()),
        unknown={**read.unknown, "compute_capability": Reason.NOT_SUPPORTED},
    )
    processes = _processes(element, total, state=state, blind=blind)
    return GpuLook(gpu=gpu, processes=processes, conditions=_conditions(element, partitioned=enabled))


def _processes(
    element: ET.Element, total: int | None, *, state: State, blind: bool
) -> Envelope[tuple[GpuProcess, ...]]:
    listed = element.find("processes")
    try:
        if listed is None:
            raise report.ReadingError(Reason.NVIDIA_SMI_NONSENSE, "the report has no list of processes")
        if not len(listed) and (listed.text or "").strip():
            report.text(element, "processes")  # `N/A`, `Insufficient Permissions`
            raise report.ReadingError(Reason.NVIDIA_SMI_NONSENSE, "the list of processes is prose")
        rows = (_row(info, total) for info in listed.findall("process_info"))
        value = source.merged(row for row in rows if row is not None)
    except (GpuError, ValueError) as error:
        return source.processes_unknown(reason_of(error), source=NAME, detail=str(error))
    evidence = {"basis": "nvidia-smi -q -x; types with an M are MPS clients"}
    return source.processes_known(value, source=NAME, state=state, evidence=evidence, blind=blind)


def _row(info: ET.Element, total: int | None) -> Row | None:
    """A compute process. A process that only draws (type `G`) is left out, as in NVML's compute list."""
    kind = report.text(info, "type")
    if not set(kind.split("+")) <= {"M", "C", "G"}:
        raise report.ReadingError(Reason.NVIDIA_SMI_NONSENSE, f"a process of type {kind[:20]!r}")
    if "C" not in kind:
        return None
    pid = report.whole(info, "pid", "")
    read = Readings(reason_of)
    memory = read.take("memory", lambda: report.mebibytes(info, "used_memory"))
    if memory is not None and total is not None and memory > total:
        memory, read.unknown["memory"] = None, Reason.NVIDIA_SMI_NONSENSE
    name = (info.findtext("process_name") or "").strip()
    instance = (info.findtext("gpu_instance_id"), info.findtext("compute_instance_id"))
    return Row(
        pid=pid,
        used_memory_bytes=memory,
        memory_unknown_reason=read.unknown.get("memory"),
        instance=instance,
        mps_client="M" in kind,
        name=shown(name) or None,
    )


def _conditions(element: ET.Element, *, partitioned: bool | None) -> Conditions:
    read = Readings(reason_of)
    utilization = read.take("utilization_ratio", lambda: _utilization(element))
    if partitioned and read.unknown.get("utilization_ratio") is Reason.NOT_SUPPORTED:
        read.unknown["utilization_ratio"] = Reason.MIG
    return Conditions(
        measured_at=source.now(),
        source=NAME,
        sm_clock_mhz=read.take("sm_clock_mhz", lambda: report.whole(element, "clocks/sm_clock", "MHz")),
        memory_clock_mhz=read.take("memory_clock_mhz", lambda: report.whole(element, "clocks/mem_clock", "MHz")),
        power_watts=read.take("power_watts", lambda: _power(element)),
        temperature_celsius=read.take(
            "temperature_celsius", lambda: report.whole(element, "temperature/gpu_temp", "C")
        ),
        throttle_reasons=read.take("throttle_reasons", lambda: _throttle_reasons(element)),
        utilization_ratio=utilization,
        memory_used_bytes=read.take("memory_used_bytes", lambda: report.mebibytes(element, "fb_memory_usage/used")),
        memory_free_bytes=read.take("memory_free_bytes", lambda: report.mebibytes(element, "fb_memory_usage/free")),
        unknown=read.unknown,
    )


def _utilization(element: ET.Element) -> float:
    percent = report.whole(element, "utilization/gpu_util", "%")
    if percent > 100:
        raise report.ReadingError(Reason.NVIDIA_SMI_NONSENSE, f"utilization of {percent} percent")
    return percent / 100


def _power(element: ET.Element) -> float:
    """The draw as NVML gives it (averaged over a second); reports before driver 535 have it elsewhere."""
    for path in ("gpu_power_readings/average_power_draw", "gpu_power_readings/power_draw", "power_readings/power_draw"):
        if element.find(path) is not None:
            return report.number(element, path, "W")
    raise report.ReadingError(Reason.NOT_SUPPORTED, "the report has no power draw")


def _throttle_reasons(element: ET.Element) -> tuple[str, ...]:
    for block, prefix in (
        ("clocks_event_reasons", "clocks_event_reason_"),
        ("clocks_throttle_reasons", "clocks_throttle_reason_"),  # its name before driver 535
    ):
        found = element.find(block)
        if found is not None and len(found):
            return tuple(
                shown(child.tag.removeprefix(prefix)) for child in found if (child.text or "").strip() == "Active"
            )
    raise report.ReadingError(Reason.NOT_SUPPORTED, "the report has no clock event reasons")
