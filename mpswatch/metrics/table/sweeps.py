"""Sweeps and interference as a whole: their times, outcomes and pairs."""

from __future__ import annotations

from mpswatch.metrics.table.spec import counter, gauge

SWEEPS = (
    gauge(
        "sweep_complete",
        "daemon uuid plan",
        "1 if every cap of the newest run was measured, else 0.",
        "no run, or the newest is older than three intervals",
        "max_over_time(mpswatch_sweep_complete[3h]) == 0",
    ),
    gauge(
        "sweep_duration_seconds",
        "daemon uuid plan",
        "How long the newest run took.",
        "no run, the newest is older than three intervals, or the clock was stepped meanwhile",
    ),
    gauge(
        "sweep_last_run_timestamp_seconds",
        "daemon uuid plan",
        "When the newest run finished, complete or not, in seconds since the epoch.",
        "no run is known",
        "time() - mpswatch_sweep_last_run_timestamp_seconds",
    ),
    gauge(
        "sweep_last_success_timestamp_seconds",
        "daemon uuid plan",
        "When the newest complete run finished, in seconds since the epoch.",
        "no complete run is known",
        "time() - mpswatch_sweep_last_success_timestamp_seconds",
    ),
    counter(
        "sweeps_total",
        "daemon uuid plan outcome",
        "Attempts to sweep: complete, partial, failed (no cell measured), refused (not begun).",
        "sweeps of this GPU are not scheduled, and none was tried",
        "sum by (outcome) (increase(mpswatch_sweeps_total[1d]))",
    ),
    counter(
        "sweep_refusals_total",
        "daemon uuid plan reason",
        "Sweeps that the preflight refused, by reason.",
        "sweeps of this GPU are not scheduled, and none was refused",
        "increase(mpswatch_sweep_refusals_total[6h]) > 0",
    ),
    gauge(
        "last_sweep_refused",
        "daemon uuid plan reason",
        "1 while the newest attempt to sweep was refused, with the reason.",
        "the newest attempt was not refused",
        "min_over_time(mpswatch_last_sweep_refused[3h]) == 1",
    ),
    gauge(
        "sweep_running",
        "daemon uuid",
        "1 while this process sweeps the GPU, else 0.",
        "sweeps of this GPU are not scheduled, and none was tried",
    ),
    gauge(
        "stuck_clients",
        "daemon uuid",
        "Measuring clients that did not leave when asked; they are left alone, and no sweep starts meanwhile.",
        "sweeps of this GPU are not scheduled, and none was tried",
        "mpswatch_stuck_clients > 0",
    ),
)

INTERFERENCE = (
    gauge(
        "interference_slowdown_ratio",
        "daemon uuid victim_cap victim_kind aggressor_cap aggressor_kind",
        "Share of its rate alone that a client of ours lost beside another one; at most 100 pairs of a run.",
        "interference was not measured, the newest is older than three intervals, or the pair was not measured",
        'max by (victim_cap) (mpswatch_interference_slowdown_ratio{victim_kind="matmul"})',
    ),
    gauge(
        "interference_slowdown_ratio_interval_low",
        "daemon uuid victim_cap victim_kind aggressor_cap aggressor_kind",
        "Lower end of the 95 % interval of mpswatch_interference_slowdown_ratio.",
        "interference was not measured, the newest is older than three intervals, or the pair has no interval",
    ),
    gauge(
        "interference_slowdown_ratio_interval_high",
        "daemon uuid victim_cap victim_kind aggressor_cap aggressor_kind",
        "Upper end of the 95 % interval of mpswatch_interference_slowdown_ratio.",
        "interference was not measured, the newest is older than three intervals, or the pair has no interval",
    ),
    gauge(
        "interference_complete",
        "daemon uuid",
        "1 if every pair of the newest interference measurement was measured, else 0.",
        "interference was not measured, or the newest is older than three intervals",
    ),
    gauge(
        "interference_last_run_timestamp_seconds",
        "daemon uuid",
        "When the newest interference measurement finished, in seconds since the epoch.",
        "interference was not measured",
        "time() - mpswatch_interference_last_run_timestamp_seconds",
    ),
)
