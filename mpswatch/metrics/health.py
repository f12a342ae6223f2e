"""Metrics about mpswatch itself: build, settings, sinks, archive, and how asking each source went."""

from __future__ import annotations

import platform

from mpswatch.latest import View
from mpswatch.metrics.sheet import Options, Sheet

SINKS = ("archive", "latest")


def about_us(view: View, sheet: Sheet, options: Options) -> None:  # noqa: ARG001  # every builder is called alike
    sheet.put("build_info", 1, view.mpswatch_version, platform.python_version())
    sheet.put("simulated", int(view.simulated))
    sheet.put("start_time_seconds", view.started_at.timestamp())
    sheet.put("poll_interval_seconds", view.poll_interval)
    sheet.put("sweep_interval_seconds", view.sweep_interval)
    sheet.put("paused", int(view.paused))
    for sink in sorted({*SINKS, *view.sink_failures}):
        sheet.put("sink_failures_total", view.sink_failures.get(sink, 0), sink)


def archive(view: View, sheet: Sheet, options: Options) -> None:  # noqa: ARG001  # every builder is called alike
    health = view.archive
    sheet.put("archive_writes_total", health.writes)
    sheet.put("archive_write_failures_total", health.failures)
    sheet.put_or_unknown("archive_bytes", health.bytes, "not_recorded")
    if health.last_success_at is not None:
        sheet.put("archive_last_success_timestamp_seconds", health.last_success_at.timestamp())
    else:
        sheet.unknown("archive_last_success_timestamp_seconds", "never_seen")
    remote = health.remote
    if remote is not None:
        why = "source_failed" if remote.fault else "never_seen"
        sheet.put_or_unknown("archive_remote_missing_runs", remote.missing, why)
        sheet.put("archive_remote_failures_total", remote.failures)
        last = remote.last_success_at.timestamp() if remote.last_success_at is not None else None
        sheet.put_or_unknown("archive_remote_last_success_timestamp_seconds", last, "never_seen")


def sources(view: View, sheet: Sheet, options: Options) -> None:  # noqa: ARG001  # every builder is called alike
    if not view.sources:
        for daemon in view.daemons:
            for name in ("poll_success", "poll_duration_seconds", "poll_last_success_timestamp_seconds"):
                sheet.unknown(name, view.poll_unknown, daemon=daemon)
    for (source, daemon), health in view.sources.items():
        success = None if health.success is None else int(health.success)
        sheet.put_or_unknown("poll_success", success, health.reason, source, daemon, daemon=daemon)
        sheet.put_or_unknown(
            "poll_duration_seconds", health.duration_seconds, health.reason, source, daemon, daemon=daemon
        )
        last = health.last_success_at.timestamp() if health.last_success_at is not None else None
        sheet.put_or_unknown("poll_last_success_timestamp_seconds", last, "never_seen", source, daemon, daemon=daemon)
