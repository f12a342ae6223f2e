"""What a sweep is asked to do: which caps, which matmul, how long anything may take."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Literal

from mpswatch.documents import Reason
from mpswatch.errors import MpswatchError

DEFAULT_CAPS = ("100", "75", "50", "25", "10")

_ITEM_BYTES = {"fp16": 2, "bf16": 2, "float16": 2, "bfloat16": 2, "tf32": 4, "fp32": 4, "float32": 4, "fp64": 8}

# A context with its kernels took 636 MiB on the H200 (recording two-managed-one-foreign), matrices apart.
_CONTEXT_BYTES = 640 << 20


class PlanError(MpswatchError):
    """A plan that would not measure what it says."""


def canonical_cap(cap: object) -> str:
    """`cap` (percent of the device) as its shortest decimal string, or `PlanError`.

    The driver ignores 0, -5, 101, `abc` and an empty value without a word and runs on the whole device
    (recording bad-caps), so what is outside 1-100 is refused here.
    """
    try:
        percent = Decimal(str(cap).strip())
    except InvalidOperation:
        percent = Decimal("NaN")
    if not percent.is_finite() or not 1 <= percent <= 100 or abs(int(percent.as_tuple().exponent)) > 6:
        raise PlanError(
            Reason.CAP_OUT_OF_RANGE,
            f"a cap is a percentage from 1 to 100, not {str(cap)[:40]!r}",
            "give caps such as 100,75,50,25,10",
        )
    text = format(percent.normalize(), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def canonical_caps(caps: Iterable[object]) -> tuple[str, ...]:
    """The caps in the order given; none at all, or the same one twice, is a `PlanError`."""
    canonical = tuple(canonical_cap(cap) for cap in caps)
    if not canonical:
        raise PlanError(Reason.CAP_OUT_OF_RANGE, "a sweep needs at least one cap", "give caps such as 100,75,50,25,10")
    twice = sorted({cap for cap in canonical if canonical.count(cap) > 1})
    if twice:
        raise PlanError(Reason.CAP_OUT_OF_RANGE, f"a cap is given twice: {', '.join(twice)}", "give each cap once")
    return canonical


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One pass over the caps, in their order. Durations are seconds.

    `caps` may be given as numbers or strings; they are kept as shortest decimal strings.
    `seed` None means: a new one for each run, recorded. `samples` are iterations timed one by one, outside
    the figure. `cell_deadline` is the child's own, from the moment its cell is asked for.
    """

    name: Literal["quick"] = "quick"
    caps: tuple[str, ...] = DEFAULT_CAPS
    size: int = 4096
    iters: int = 80
    dtype: str = "fp16"
    warm_up: int = 3
    samples: int = 20
    seed: int | None = None
    launch_deadline: float = 90.0
    cell_deadline: float = 30.0
    join_deadline: float = 3.0
    drain_deadline: float = 10.0
    sweep_deadline: float = 300.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "caps", canonical_caps(self.caps))
        for name, value, least, most in (
            ("size", self.size, 16, 65536),
            ("iters", self.iters, 1, 10_000_000),
            ("warm_up", self.warm_up, 0, 100_000),
            ("samples", self.samples, 0, 100),
        ):
            if not least <= value <= most:
                raise PlanError(Reason.NOT_SUPPORTED, f"{name} must be from {least} to {most}, not {value}")
        for name, seconds in (
            ("launch_deadline", self.launch_deadline),
            ("cell_deadline", self.cell_deadline),
            ("join_deadline", self.join_deadline),
            ("drain_deadline", self.drain_deadline),
            ("sweep_deadline", self.sweep_deadline),
        ):
            if not 0 < seconds < 86400:
                raise PlanError(
                    Reason.NOT_SUPPORTED, f"{name} must be more than 0 s and less than a day, not {seconds}"
                )

    @property
    def memory_bytes(self) -> int:
        """Device memory that one cell needs: three matrices and a context."""
        return 3 * self.size * self.size * _ITEM_BYTES.get(self.dtype, 8) + _CONTEXT_BYTES


def tflops(*, size: int, iters: int, seconds: float) -> float:
    """10^12 floating-point operations a second of `iters` matmuls of size^3, as the reference document counts."""
    return 2.0 * size**3 * iters / seconds / 1e12
