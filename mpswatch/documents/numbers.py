"""What numbers can be, held where a document is read: an impossible one is a fault with a place, not a measurement.

Bounds are of nature, not of taste: wide enough for every GPU and host that may come, narrow enough that each whole
number fits into 64 bits (the index, JSON's other readers) and that sums and ratios of them stay finite.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

Whole: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""A count, bytes, ticks, an inode."""

Number32: TypeAlias = Annotated[int, Meta(ge=0, le=2**32 - 1)]
"""A pid, a uid, a number of SMs, an index, MHz or MiB: the kernel's and the driver's are 32 bits wide."""

Seed: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=1e9)]
"""How long something took; 0 where the clock did not turn."""

Work: TypeAlias = Annotated[float, Meta(gt=0, le=1e9)]
"""Seconds of work that was measured: it took some."""

Speed: TypeAlias = Annotated[float, Meta(gt=0, le=1e9)]
"""TFLOPS, GB/s or launches/s that were measured."""

Ratio: TypeAlias = Annotated[float, Meta(ge=0, le=1)]

Spread: TypeAlias = Annotated[float, Meta(ge=0, le=1e9)]
"""(largest - smallest) / median: above 1 where one sample was far off."""

Slowdown: TypeAlias = Annotated[float, Meta(ge=-1e9, le=1)]
"""1 - one rate / another: nothing loses more than all of it."""

Percent: TypeAlias = Annotated[float, Meta(ge=0, le=100)]

Rough: TypeAlias = Annotated[float, Meta(ge=-1e9, le=1e9)]
"""An edge that is computed, of a number of SMs or of a band: it may lie below 0."""

Reading: TypeAlias = Annotated[float, Meta(ge=0, le=1e9)]
"""A clock in MHz or a power in watts, as a source reads it."""

Celsius: TypeAlias = Annotated[float, Meta(ge=-273.15, le=1e4)]

Cap: TypeAlias = Annotated[str, Meta(pattern=r"^(100(\.0+)?|[1-9]?[0-9](\.[0-9]+)?)$")]
"""A percentage of the device as text, 0 to 100."""
