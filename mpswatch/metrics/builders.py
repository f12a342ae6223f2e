"""All families of one view, afresh: pure, and a fault in one builder silences that builder alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mpswatch.documents import Reason
from mpswatch.latest import View
from mpswatch.metrics import health, history, interference, patterns, polls, sweeps, tenants
from mpswatch.metrics.sheet import Family, Options, Sheet
from mpswatch.metrics.table import (
    ABOUT_US,
    ARCHIVE,
    CAPS,
    GPUS,
    HISTORY,
    INTERFERENCE,
    MPS,
    SOURCES,
    SWEEPS,
    TENANTS,
    Spec,
)

Builder: TypeAlias = Callable[[View, Sheet, Options], None]

BUILDERS: tuple[tuple[Builder, tuple[Spec, ...]], ...] = (
    (health.about_us, ABOUT_US),
    (health.archive, ARCHIVE),
    (health.sources, SOURCES),
    (polls.gpus, GPUS),
    (polls.mps, MPS),
    (tenants.tenants, TENANTS),
    (patterns.patterns, ()),
    (sweeps.sweeps, CAPS + SWEEPS),
    (history.history, HISTORY),
    (interference.interference, INTERFERENCE),
)
"""Each builder, with the metrics that are unknown when it fails."""


def build(
    view: View,
    options: Options = Options(),  # noqa: B008  # frozen
    *,
    earlier_faults: int = 0,
    builders: tuple[tuple[Builder, tuple[Spec, ...]], ...] = BUILDERS,
) -> tuple[tuple[Family, ...], tuple[Exception, ...]]:
    """Give every family (silent ones too) and the faults of ours that came up; never raises.

    `earlier_faults` is how many were counted before this view: mpswatch_metrics_errors_total goes on from there.
    """
    sheet = Sheet()
    faults = []
    for builder, specs in builders:
        part = Sheet()
        try:
            builder(view, part, options)
        except Exception as fault:  # noqa: BLE001  # a scrape must not fail: what this builder knows is absent, and counted
            faults.append(fault)
            for spec in specs:
                sheet.unknown(spec.quantity, Reason.INTERNAL_ERROR)
        else:
            sheet.merge(part)
    sheet.put("metrics_errors_total", earlier_faults + len(faults))
    return sheet.families(), tuple(faults)


def families(view: View, options: Options = Options()) -> tuple[Family, ...]:  # noqa: B008  # frozen
    """Give every family of `view`, in the table's order; never raises."""
    return build(view, options)[0]
