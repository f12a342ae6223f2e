"""The steps of a sweep, for whoever watches it live."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from mpswatch.documents import Cell, InterferenceCell, Reason


@dataclass(frozen=True, kw_only=True)
class Importing:
    """The launcher was started and imports the client's libraries (torch: 3 to 5 s)."""

    run_id: str
    client_runtime: str


@dataclass(frozen=True, kw_only=True)
class Ready:
    """The launcher can fork cells; `seconds` since it was started."""

    seconds: float


@dataclass(frozen=True, kw_only=True)
class CellStarted:
    """The cell number `order` (from 1) of `of` was asked for."""

    order: int
    of: int
    cap: str


@dataclass(frozen=True, kw_only=True)
class CellAttached:
    """The child has its context and waits to be found in the daemon's list; no work has run yet."""

    order: int
    of: int
    cap: str
    sm_count: int


@dataclass(frozen=True, kw_only=True)
class CellMeasuring:
    """The child was found in the list, on the right server, and was told to go."""

    order: int
    of: int
    cap: str
    client_pid: int


@dataclass(frozen=True, kw_only=True)
class CellDone:
    """The cell is over, measured or unknown (`cell.state`)."""

    order: int
    of: int
    cell: Cell


@dataclass(frozen=True, kw_only=True)
class PairStarted:
    """Interference: measurement `order` of `of`; `beside` None is the victim alone."""

    order: int
    of: int
    victim: str
    beside: str | None


@dataclass(frozen=True, kw_only=True)
class PairDone:
    """A cell of the matrix, or a victim alone, is known; it comes once its victim has been measured alone again."""

    cell: InterferenceCell


@dataclass(frozen=True, kw_only=True)
class Refused:
    """No cell will run, or no further one."""

    reason: Reason
    detail: str
    remedy: str | None


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The document is complete; `seconds` is the whole sweep, `measured` of `of` `what` have a number."""

    seconds: float
    measured: int
    of: int
    what: str = "caps"


Progress: TypeAlias = (
    Importing
    | Ready
    | CellStarted
    | CellAttached
    | CellMeasuring
    | CellDone
    | PairStarted
    | PairDone
    | Refused
    | Finished
)
