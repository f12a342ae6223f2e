"""The GPUs that a rehearsal pretends to have: H200s, said to be rehearsed in name and uuid."""

from __future__ import annotations

NAME = "NVIDIA H200 (rehearsal)"
MEMORY_MIB = 143771
RESERVED_MIB = 616
SERVER_MIB = 66
CLIENT_MIB = 470  # a measuring client's, as recorded


def uuid(index: int) -> str:
    """Device `index`'s uuid, the same in every rehearsal."""
    return f"GPU-5e0ea55a-0000-4000-8000-{index:012x}"


def bus(index: int) -> str:
    return f"00000000:00:{6 + index:02X}.0"
