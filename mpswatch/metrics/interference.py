"""Metrics of the newest interference measurement: what pairs of our own clients cost each other."""

from __future__ import annotations

from mpswatch.latest import View
from mpswatch.metrics.sheet import Options, Sheet

PAIRS_MOST = 100
"""Pairs of one run that get series: those of ten caps beside ten."""


def interference(view: View, sheet: Sheet, options: Options) -> None:  # noqa: ARG001  # every builder is called alike
    for (daemon, uuid), health in view.interferences.items():
        sheet.put("interference_last_run_timestamp_seconds", health.finished_at.timestamp(), daemon, uuid)
        document = health.document
        if document is None:
            continue
        sheet.put("interference_complete", int(document.complete), daemon, uuid)
        for cell in document.pairs[:PAIRS_MOST]:
            labels = (
                daemon,
                uuid,
                cell.victim_cap,
                cell.victim_kind,
                cell.aggressor_cap or "",
                cell.aggressor_kind or "",
            )
            sheet.put("interference_slowdown_ratio", cell.slowdown, *labels)
            sheet.put("interference_slowdown_ratio_interval_low", cell.slowdown_low, *labels)
            sheet.put("interference_slowdown_ratio_interval_high", cell.slowdown_high, *labels)
