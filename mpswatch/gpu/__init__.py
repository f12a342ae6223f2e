"""GPUs and their processes, from NVML or from nvidia-smi, with unknown as unknown."""

from __future__ import annotations

from typing import Literal

from mpswatch.gpu.library import NvmlSource
from mpswatch.gpu.multiprocessors import sm_total
from mpswatch.gpu.nvidia_smi import NvidiaSmiSource
from mpswatch.gpu.source import GpuError, GpuSource, conditions_unknown
from mpswatch.proc import Processes

__all__ = ["GpuError", "GpuSource", "NvidiaSmiSource", "NvmlSource", "conditions_unknown", "open_sources", "sm_total"]


def open_sources(
    setting: Literal["auto", "nvml", "nvidia-smi"],
    *,
    nvidia_smi: str,
    deadline: float,
    simulated: bool,
    processes: Processes | None = None,
) -> tuple[GpuSource, ...]:
    """The sources in order of preference: `auto` is NVML, then nvidia-smi. Nothing is asked yet.

    `nvidia_smi` is the program, ended after `deadline` seconds. A rehearsal (`simulated`) has a program of its own and
    never asks NVML, which knows the real GPU only.
    """
    program = NvidiaSmiSource(nvidia_smi, deadline=deadline, simulated=simulated, processes=processes)
    if simulated or setting == "nvidia-smi":
        return (program,)
    library = NvmlSource(processes)
    return (library,) if setting == "nvml" else (library, program)
