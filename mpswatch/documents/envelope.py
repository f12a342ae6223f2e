"""What every document is made of: an immutable base, and the envelope of a measured quantity."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

SCHEMA_VERSION = 1

T = TypeVar("T")

State: TypeAlias = Literal["measured", "simulated", "unknown"]
"""`simulated` is what the rehearsal stack produced: a reader that asks for `measured` must reject it."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every type here: immutable, built by keyword, unknown keys of later versions ignored."""


class Envelope(Document, Generic[T], frozen=True, kw_only=True):
    """A measured quantity as the reference document writes it.

    `value` is None exactly when `state` is `unknown`, and then `unknown_reason` says why.
    `measured_at` is the moment of this measurement, not of the document that holds it.
    """

    value: T | None
    state: State
    source: str
    measured_at: datetime
    evidence: dict[str, Any]
    unknown_reason: str | None

    def __post_init__(self) -> None:
        unknown = self.state == "unknown"
        if unknown != (self.value is None):
            raise ValueError(f"state {self.state!r} does not go with value {self.value!r}")
        if unknown != (self.unknown_reason is not None):
            raise ValueError(f"state {self.state!r} does not go with unknown_reason {self.unknown_reason!r}")
