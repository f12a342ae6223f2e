"""How many streaming multiprocessors a whole device has, from its number of cores.

A client under a cap sees fewer, and under a daemon's default percentage even the 100 % client does; so the total
comes from the driver (nvmlDeviceGetNumGpuCores) over the cores per multiprocessor of the compute capability.
"""

from __future__ import annotations

from types import MappingProxyType

# CUDA C++ Programming Guide, "Compute Capabilities": FP32 cores per multiprocessor. Checked here: 9.0 on an H200
# (16896 cores, 132 multiprocessors).
CORES_PER_SM = MappingProxyType(
    {
        (5, 0): 128,
        (5, 2): 128,
        (5, 3): 128,
        (6, 0): 64,
        (6, 1): 128,
        (6, 2): 128,
        (7, 0): 64,
        (7, 2): 64,
        (7, 5): 64,
        (8, 0): 64,
        (8, 6): 128,
        (8, 7): 128,
        (8, 9): 128,
        (9, 0): 128,
        (10, 0): 128,
        (10, 1): 128,
        (10, 3): 128,
        (11, 0): 128,
        (12, 0): 128,
        (12, 1): 128,
    }
)


def sm_total(cores: int, compute_capability: tuple[int, int]) -> int | None:
    """The device's multiprocessors; None for a capability not in the table, or a core count that does not divide."""
    per_sm = CORES_PER_SM.get(compute_capability)
    if per_sm is None or cores <= 0 or cores % per_sm:
        return None
    return cores // per_sm
