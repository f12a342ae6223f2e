"""The sheet that builders fill: one value for each set of labels, so that no series can appear twice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from mpswatch.documents import Reason
from mpswatch.metrics.table import BY_NAME, TABLE, Spec

Samples: TypeAlias = dict[tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with its series: label values (in the order of `spec.labels`) to value. Empty is silence."""

    spec: Spec
    samples: Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is published beyond the view.

    So many foreign process names (and groups of each kind), sums by these groups, and pid labels (off: they never end).
    """

    tenant_names: int = 20
    tenant_groups: tuple[str, ...] = ()
    pid_labels: bool = False


class Sheet:
    """Values by metric, as builders find them. A value that is no finite number is refused as a fault of ours."""

    def __init__(self) -> None:
        self._samples: dict[str, Samples] = {}

    def put(self, name: str, value: float | None, *labels: str) -> None:
        """Set one series of `mpswatch_NAME`; a value of None is absence."""
        if value is None:
            return
        spec = BY_NAME[f"mpswatch_{name}"]
        if len(labels) != len(spec.labels) or not math.isfinite(value):
            raise ValueError(f"{spec.name} does not take {labels} with {value}")
        self._samples.setdefault(spec.name, {})[labels] = value

    def add(self, name: str, value: float, *labels: str) -> None:
        """Add to one series of `mpswatch_NAME`, from 0."""
        self.put(name, self._samples.get(f"mpswatch_{name}", {}).get(labels, 0) + value, *labels)

    def unknown(self, name: str, reason: str | None, *, daemon: str = "", uuid: str = "") -> None:
        """Say that `mpswatch_NAME` is unknown for this daemon and GPU."""
        quantity = BY_NAME[f"mpswatch_{name}"].quantity
        self.put("unknown", 1, daemon, uuid, quantity, bounded(reason))

    def put_or_unknown(
        self, name: str, value: float | None, reason: str | None, *labels: str, daemon: str = "", uuid: str = ""
    ) -> None:
        """Set one series, or say why it is absent."""
        if value is None:
            self.unknown(name, reason, daemon=daemon, uuid=uuid)
        else:
            self.put(name, value, *labels)

    def families(self) -> tuple[Family, ...]:
        """Give every family of the table, in its order, those without series too."""
        return tuple(Family(spec, self._samples.get(spec.name, {})) for spec in TABLE)

    def merge(self, other: Sheet) -> None:
        for name, samples in other._samples.items():  # of the same class
            self._samples.setdefault(name, {}).update(samples)


def bounded(reason: str | None) -> str:
    """Give a reason as a label value: one of `Reason`, whatever a document says."""
    try:
        return Reason(reason or Reason.NOT_RECORDED).value
    except ValueError:
        return Reason.INTERNAL_ERROR.value
