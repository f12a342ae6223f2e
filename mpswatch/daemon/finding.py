"""One line of doctor."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Mark: TypeAlias = Literal["good", "mend", "note"]
"""As it should be; keeps sweeps or the daemon from their work; merely worth knowing."""


class Line(NamedTuple):
    """What was looked at, what was found, and what to do about it."""

    mark: Mark
    what: str
    detail: str
    remedy: str | None = None
