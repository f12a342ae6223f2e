"""Metrics of how the newest run stands against its own history (docs/history.md)."""

from __future__ import annotations

from typing import get_args

from mpswatch.documents import CapStanding, Reason, Standing
from mpswatch.latest import Target, View
from mpswatch.metrics.sheet import Options, Sheet

STANDINGS: tuple[str, ...] = tuple(standing for standing in get_args(Standing) if standing != "unknown")


def history(view: View, sheet: Sheet, options: Options) -> None:  # noqa: ARG001  # every builder is called alike
    for target in view.to_measure:
        health, look = view.sweeps.get(target), view.history.get(target)
        if look is not None:
            for found in look.caps:
                _cap(target, found, sheet)
        else:
            reason = Reason.NEVER_SEEN if health is None else Reason.STALE if health.document is None else None
            sheet.unknown("cap_history_standing", reason, daemon=target.daemon, uuid=target.gpu_uuid)


def _cap(target: Target, found: CapStanding, sheet: Sheet) -> None:
    labels = (*target, found.cap, found.quantity)
    if found.standing == "unknown":
        sheet.unknown("cap_history_standing", found.unknown_reason, daemon=target.daemon, uuid=target.gpu_uuid)
    else:
        for standing in STANDINGS:
            sheet.put("cap_history_standing", int(standing == found.standing), *labels, standing)
    sheet.put("cap_history_median_tflops", found.median, *labels)
    sheet.put("cap_history_low_tflops", found.low, *labels)
    if found.tflops is not None:
        sheet.put("cap_history_runs", found.runs, *labels)
