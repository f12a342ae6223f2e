"""What the table says of a metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["gauge", "counter", "info"]

ALWAYS = "never"
NO_POLL = "no poll yet, or the newest is older than three intervals"


@dataclass(frozen=True, slots=True)
class Spec:
    """One metric. `name` is the full name of its series; `absent` says when a series of it is not there."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    absent: str
    example: str

    @property
    def quantity(self) -> str:
        """What `mpswatch_unknown` calls it."""
        return self.name.removeprefix("mpswatch_")


def gauge(name: str, labels: str, help_: str, absent: str, example: str = "") -> Spec:
    """Describe a gauge, `name` without its prefix, `labels` separated by spaces; asked for by name alone by default."""
    return Spec(f"mpswatch_{name}", "gauge", tuple(labels.split()), help_, absent, example or f"mpswatch_{name}")


def counter(name: str, labels: str, help_: str, absent: str, example: str) -> Spec:
    """Describe a counter, as `gauge` does."""
    return Spec(f"mpswatch_{name}", "counter", tuple(labels.split()), help_, absent, example)


def info(name: str, labels: str, help_: str, absent: str, example: str) -> Spec:
    """Describe a gauge that is always 1, whose labels are what it says."""
    return Spec(f"mpswatch_{name}", "info", tuple(labels.split()), help_, absent, example)
