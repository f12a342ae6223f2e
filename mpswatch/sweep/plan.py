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
    return canonical_caps([cap])[0]


def canonical_caps(caps: Iterable[object]) -> tuple[str, ...]:
    """The caps in the order given; a `PlanError` names all that are none or are there twice, or that there is none."""
    found = [(cap, _shortest(cap)) for cap in caps]
    canonical = tuple(text for _, text in found if text is not None)
    wrong = [repr(str(cap)[:40]) for cap, text in found if text is None]
    twice = [text for text in dict.fromkeys(canonical) if canonical.count(text) > 1]
    faults = [f"a cap is a percentage from 1 to 100, not {', '.join(wrong)}"] if wrong else []
    faults += [f"a cap is given twice: {', '.join(twice)}"] if twice else []
    faults += [] if found else ["a sweep needs at least one cap"]
    if faults:
        raise PlanError(Reason.CAP_OUT_OF_RANGE, "; ".join(faults), "give caps such as 100,75,50,25,10")
    return canonical


def _shortest(cap: object) -> str | None:
    try:
        percent = Decimal(str(cap).strip())
    except InvalidOperation:
        return None
    if not percent.is_finite() or not 1 <= percent <= 100 or abs(int(percent.as_tuple().exponent)) > 6:
        return None
    text = format(percent.normalize(), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


@dataclass(frozen=True, kw_only=True)
class Thorough:
    """How the plan `thorough` takes its samples. Durations are seconds, ratios 0-1.

    Each client (a repeat) makes `passes` passes of `iters` (a burst sample each, `rest` apart: after 20 ms alone the
    H200's power limit still held from the pass before). Then it works under
    load until its times settle (`settle_least` to `settle_most`, windows within `tolerance`; on the H200 power holds
    the clocks back from 0.4 s on), and takes sustained samples of `block` for `sustain`. All caps get a repeat, in
    order, then all again in reverse, and so on: at least `rounds_least` times, then again those whose intervals are
    still wider than `interval_width` (a ratio of the median), up to `rounds_most` times and until `budget` is used
    up. Every `look` seconds the GPU's conditions are noted.
    """

    passes: int = 3
    rest: float = 0.15
    settle_least: float = 0.5
    settle_most: float = 0.8
    tolerance: float = 0.005
    sustain: float = 0.3
    block: float = 0.025
    rounds_least: int = 3
    rounds_most: int = 4
    interval_width: float = 0.01
    budget: float = 25.0
    look: float = 0.1

    def __post_init__(self) -> None:
        if not 1 <= self.passes <= 50 or not 1 <= self.rounds_least <= self.rounds_most <= 50:
            raise PlanError(
                Reason.NOT_SUPPORTED, "passes must be from 1 to 50, and rounds_least at most rounds_most, at most 50"
            )
        for name in ("rest", "settle_least", "settle_most", "tolerance", "sustain", "block", "budget"):
            if not 0 <= getattr(self, name) <= 600:
                raise PlanError(Reason.NOT_SUPPORTED, f"{name} must be from 0 to 600, not {getattr(self, name)}")
        if self.interval_width <= 0 or self.look <= 0 or self.settle_most < self.settle_least:
            raise PlanError(
                Reason.NOT_SUPPORTED,
                "interval_width and look must be above 0, and settle_most at least settle_least",
            )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One pass over the caps, in their order; `thorough` more than one. Durations are seconds.

    `caps` may be given as numbers or strings; they are kept as shortest decimal strings.
    `seed` None means: a new one for each run, recorded. `samples` are iterations timed one by one, outside
    the figure. `cell_deadline` is the child's own, from the moment its cell is asked for.
    """

    name: Literal["quick", "thorough"] = "quick"
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
    thorough: Thorough | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "caps", canonical_caps(self.caps))
        if (self.name == "thorough") != (self.thorough is not None):
            raise PlanError(Reason.NOT_SUPPORTED, "a thorough plan, and no other, says how it is thorough")
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

    def request(self) -> dict[str, object]:
        """What a cell is asked beyond the quick protocol."""
        settings = self.thorough
        if settings is None:
            return {}
        sustained = {
            "seconds": settings.sustain,
            "block": settings.block,
            "settle_least": settings.settle_least,
            "settle_most": settings.settle_most,
            "tolerance": settings.tolerance,
        }
        return {"samples": 0, "passes": settings.passes, "rest": settings.rest, "sustained": sustained}

    @property
    def memory_bytes(self) -> int:
        """Device memory that one cell needs: three matrices and a context."""
        return 3 * self.size * self.size * item_bytes(self.dtype) + _CONTEXT_BYTES


def item_bytes(dtype: str) -> int:
    """Bytes of one element; of a kind that is not known, as many as any has."""
    return _ITEM_BYTES.get(dtype, 8)


def tflops(*, size: int, iters: int, seconds: float) -> float:
    """10^12 floating-point operations a second of `iters` matmuls of size^3, as the reference document counts."""
    return 2.0 * size**3 * iters / seconds / 1e12
