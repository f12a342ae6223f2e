"""The instances of a GPU that MIG has partitioned, from nvidia-smi's report: they are named, and left alone.

NVIDIA documents no layout of the block; this is what public reports of drivers 535 to 575 show. It has not been read
from a partitioned device of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mpswatch.documents import MigDevice, Reason
from mpswatch.gpu import report
from mpswatch.gpu.source import Readings
from mpswatch.names import shown

if TYPE_CHECKING:
    import xml.etree.ElementTree as ET


def named(
    read: Readings, ask: Callable[[], tuple[MigDevice, ...]], *, enabled: bool | None
) -> tuple[MigDevice, ...] | None:
    """The instances; empty, and nobody is asked, where MIG is off. None with a reason where it cannot be told."""
    if enabled is None:
        read.unknown["mig_devices"] = read.unknown["mig_enabled"]
        return None
    return read.take("mig_devices", ask) if enabled else ()


def of_report(gpu: ET.Element, reason_of: Callable[[Exception], Reason]) -> tuple[MigDevice, ...]:
    """Those of one GPU of the report. Raises `ReadingError` where the block is not there or numbers none of them."""
    block = gpu.find("mig_devices")
    if block is None:
        raise report.ReadingError(Reason.NOT_SUPPORTED, "the report has no mig_devices")
    return tuple(_one(instance, reason_of) for instance in block.findall("mig_device"))


def _one(instance: ET.Element, reason_of: Callable[[Exception], Reason]) -> MigDevice:
    read = Readings(reason_of, {"profile": Reason.NOT_SUPPORTED})  # no report tells it
    sms = "device_attributes/shared/multiprocessor_count"
    return MigDevice(
        index=report.whole(instance, "index", ""),
        uuid=read.take("uuid", lambda: shown(report.text(instance, "uuid"))),
        profile=None,
        gpu_instance_id=read.take("gpu_instance_id", lambda: report.whole(instance, "gpu_instance_id", "")),
        compute_instance_id=read.take("compute_instance_id", lambda: report.whole(instance, "compute_instance_id", "")),
        sm_count=read.take("sm_count", lambda: report.whole(instance, sms, "")),
        memory_total_bytes=read.take("memory_total_bytes", lambda: report.mebibytes(instance, "fb_memory_usage/total")),
        unknown=read.unknown,
    )
