"""Metrics from sweeps: the curve of the newest run, its health, and what was counted since the start."""

from __future__ import annotations

from typing import get_args

from mpswatch.documents import CapEnforcement, Cell, Reason, SweepDocument
from mpswatch.evidence.quantities import quantities_of, readings
from mpswatch.latest import OUTCOMES, SweepHealth, Target, View
from mpswatch.metrics.sheet import Options, Sheet, bounded

REFUSALS = (
    Reason.ARCHIVE_WRITE_FAILED,
    Reason.CLIENT_LEFT_OVER,
    Reason.CLIENT_PROGRAM_MISSING,
    Reason.CONTROL_PROGRAM_MISSING,
    Reason.DAEMON_ABSENT,
    Reason.DAEMON_NONSENSE,
    Reason.DAEMON_SILENT,
    Reason.DISABLED,
    Reason.FOREIGN_CLIENT_WAITING,
    Reason.MEMORY_SHORT,
    Reason.MIG,
    Reason.NO_GPU,
    Reason.NO_POLL_YET,
    Reason.NO_SERVER,
    Reason.PAUSED,
    Reason.PERMISSION,
    Reason.PID_NAMESPACE_BLIND,
    Reason.PROTOCOL_UNSUPPORTED,
    Reason.QUIET_HOURS,
    Reason.RECENT_FAULT,
    Reason.REHEARSAL_STACK,
    Reason.SERVER_CHANGED,
    Reason.SERVER_FAULT,
    Reason.SERVER_FULL,
    Reason.SERVER_NOT_ACTIVE,
    Reason.SERVER_UNSETTLED,
    Reason.SEVERAL_SERVERS,
    Reason.SOURCE_FAILED,
    Reason.SOURCE_STUCK,
    Reason.STOPPED,
    Reason.SWEEP_RUNNING,
    Reason.UID_MISMATCH,
    Reason.UTILIZATION_HIGH,
)
"""What a preflight refuses for: these exist at 0 from the start; any other reason appears when it happens."""

VERDICTS: tuple[str, ...] = get_args(CapEnforcement)

OF_A_RUN = ("cap_tflops", "sweep_complete", "sweep_duration_seconds")
TIMES = ("sweep_last_run_timestamp_seconds", "sweep_last_success_timestamp_seconds")


def sweeps(view: View, sheet: Sheet, options: Options) -> None:  # noqa: ARG001  # every builder is called alike
    to_measure = view.to_measure
    for target in view.targets:
        if target not in to_measure:
            _attempts(view, target, sheet)
            continue
        _counters(view, target, sheet)
        health = view.sweeps.get(target)
        if health is None:
            sheet.put("cap_unknown", 1, *target, "", Reason.NEVER_SEEN)
            for name in (*OF_A_RUN, *TIMES):
                sheet.unknown(name, Reason.NEVER_SEEN, daemon=target.daemon, uuid=target.gpu_uuid)
        else:
            _run(target, health, sheet)
    for daemon, uuid in sorted({target[:2] for target in to_measure} | set(view.stuck) | view.running):
        sheet.put("stuck_clients", len(view.stuck.get((daemon, uuid), ())), daemon, uuid)
        sheet.put("sweep_running", int((daemon, uuid) in view.running), daemon, uuid)


def _counters(view: View, target: Target, sheet: Sheet) -> None:
    for outcome in OUTCOMES:
        sheet.put("sweeps_total", view.outcomes.get((target, outcome), 0), *target, outcome)
    seen = {reason for refused, reason in view.refusals if refused == target}
    for reason in sorted({*REFUSALS, *seen}):
        sheet.put("sweep_refusals_total", view.refusals.get((target, reason), 0), *target, reason)
    _last_refused(view, target, sheet)


def _attempts(view: View, target: Target, sheet: Sheet) -> None:
    """What happened without a GPU's name, and nothing at 0."""
    for (attempted, outcome), count in sorted(view.outcomes.items()):
        if attempted == target:
            sheet.put("sweeps_total", count, *target, outcome)
    for (refused, reason), count in sorted(view.refusals.items()):
        if refused == target:
            sheet.put("sweep_refusals_total", count, *target, reason)
    _last_refused(view, target, sheet)


def _last_refused(view: View, target: Target, sheet: Sheet) -> None:
    if target in view.refused:
        sheet.put("last_sweep_refused", 1, *target, bounded(view.refused[target].reason))


def _run(target: Target, health: SweepHealth, sheet: Sheet) -> None:
    daemon, uuid = target.daemon, target.gpu_uuid
    sheet.put("sweep_last_run_timestamp_seconds", health.finished_at.timestamp(), *target)
    success = health.last_success_at.timestamp() if health.last_success_at is not None else None
    sheet.put_or_unknown(TIMES[1], success, Reason.NEVER_SEEN, *target, daemon=daemon, uuid=uuid)
    if health.document is None:
        for cap in health.caps:
            sheet.put("cap_unknown", 1, *target, cap, Reason.STALE)
        for name in OF_A_RUN:
            sheet.unknown(name, Reason.STALE, daemon=daemon, uuid=uuid)
        return
    sheet.put("sweep_complete", int(health.document.complete_sweep), *target)
    sheet.put_or_unknown(
        "sweep_duration_seconds",
        duration(health.document),
        Reason.NOT_RECORDED,
        *target,
        daemon=daemon,
        uuid=uuid,
    )
    quantities = quantities_of(health.document)
    for cell in health.document.cells:
        _cell(target, cell, sheet)
        for reading in readings(cell, quantities):
            labels = (*target, cell.cap, reading.words)
            clock = reading.sm_clock_mhz
            sheet.put("cap_sm_clock_hertz", None if clock is None else clock * 1e6, *labels)
            sheet.put("cap_power_watts", reading.power_watts, *labels)


def _cell(target: Target, cell: Cell, sheet: Sheet) -> None:
    labels = (*target, cell.cap)
    daemon, uuid = target.daemon, target.gpu_uuid
    if cell.tflops is None:
        sheet.put("cap_unknown", 1, *labels, bounded(cell.unknown_reason))
        sheet.unknown("cap_tflops", cell.unknown_reason, daemon=daemon, uuid=uuid)
    sheet.put("cap_tflops", cell.tflops, *labels)
    expected = cell.sm_count_expected.at_most if cell.sm_count_expected is not None else None
    for name, field, value in (
        ("cap_sm_count", "sm_count", cell.sm_count),
        ("cap_sm_count_expected", "sm_count_expected", expected),
        ("cap_sm_count_as_expected", "sm_count_as_expected", _as_number(cell.sm_count_as_expected)),
        ("cap_self_managed", "self_was_managed", _as_number(cell.self_was_managed)),
    ):
        reason = cell.unknown.get(field) or cell.unknown_reason
        sheet.put_or_unknown(name, value, reason, *labels, daemon=daemon, uuid=uuid)
    if cell.verdict is not None:
        for verdict in VERDICTS:
            sheet.put("cap_verdict", int(verdict == cell.verdict.verdict), *labels, verdict)
    if cell.burst is not None:
        sheet.put("cap_tflops_interval_low", cell.burst.interval_low, *labels)
        sheet.put("cap_tflops_interval_high", cell.burst.interval_high, *labels)
    if cell.sustained is not None:
        sheet.put("cap_sustained_tflops", cell.sustained.tflops, *labels)
        sheet.put("cap_sustained_tflops_interval_low", cell.sustained.interval_low, *labels)
        sheet.put("cap_sustained_tflops_interval_high", cell.sustained.interval_high, *labels)


def duration(document: SweepDocument) -> float | None:
    """Give how long a run took by its own two times; None where they are missing or run backwards."""
    if document.started_at is None or document.finished_at is None:
        return None
    seconds = (document.finished_at - document.started_at).total_seconds()
    return seconds if seconds >= 0 else None


def _as_number(verdict: bool | None) -> int | None:  # noqa: FBT001  # a value, not a switch
    return None if verdict is None else int(verdict)
