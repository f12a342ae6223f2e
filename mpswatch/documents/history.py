"""How a run stands against the earlier ones of its series."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from mpswatch.documents.envelope import Document
from mpswatch.documents.numbers import Rough, Speed, Whole

Standing: TypeAlias = Literal["usual", "slower_once", "below", "explained", "above", "unknown"]
"""How a run stands against its own history (docs/history.md): `below` and `above` are two runs in a row."""


Quantity: TypeAlias = Literal["tflops", "burst", "sustained"]
"""What of a cell: the reference's throughput, or one of the two figures of `thorough`. They share no history."""

QUANTITIES: tuple[Quantity, ...] = ("tflops", "burst", "sustained")


class CapStanding(Document, frozen=True, kw_only=True):
    """One cap of a run beside its own history. TFLOPS; `low` to `high` is what the `runs` runs before it call usual.

    `unknown` has its reason (a history that is too short has `runs` and the run's own `tflops` all the same).
    `explained_by` names who came or left, where that is why the run is not judged.
    """

    cap: str
    standing: Standing
    quantity: Quantity = "tflops"
    unknown_reason: str | None = None
    tflops: Speed | None = None
    median: Speed | None = None
    low: Rough | None = None
    high: Rough | None = None
    runs: Whole = 0
    explained_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.standing == "unknown") != (self.unknown_reason is not None):
            raise ValueError(f"standing {self.standing!r} does not go with unknown_reason {self.unknown_reason!r}")


class PastRun(Document, frozen=True, kw_only=True):
    """An earlier run of the same series: TFLOPS by cap, None for a cap without a number.

    `burst` and `sustained` are empty where the plan does not measure them; the three are never mixed.
    """

    run_id: str
    at: datetime
    tflops: dict[str, Speed | None]
    burst: dict[str, Speed | None] = {}
    sustained: dict[str, Speed | None] = {}

    def of(self, quantity: Quantity) -> dict[str, float | None]:
        return {"tflops": self.tflops, "burst": self.burst, "sustained": self.sustained}[quantity]


class HistoryLook(Document, frozen=True, kw_only=True):
    """How one run stands against the earlier ones of its series, the newest of which are in `previous` (oldest first).

    `daemon`, `gpu_uuid` and `plan` are the run's own; `unreadable` counts files of the archive that are no runs that
    this version reads: they are in no history.
    """

    kind: Literal["history"] = "history"
    host: str
    daemon: str
    gpu_uuid: str
    plan: str
    run_id: str
    judged_at: datetime
    simulated: bool
    caps: tuple[CapStanding, ...]
    previous: tuple[PastRun, ...]
    unreadable: Whole = 0
