"""mpswatch itself: the process, its archive, its sources, and what it does not know."""

from __future__ import annotations

from mpswatch.metrics.table.spec import ALWAYS, NO_POLL, counter, gauge, info

ABOUT_US = (
    info(
        "build_info",
        "version python_version",
        "The running mpswatch: 1, with its version and that of its Python.",
        ALWAYS,
        "count by (version) (mpswatch_build_info)",
    ),
    gauge(
        "simulated",
        "",
        "1 if everything here comes from the rehearsal stack, 0 if from a real one.",
        ALWAYS,
        "mpswatch_simulated == 1",
    ),
    gauge(
        "start_time_seconds",
        "",
        "When this process began to watch, in seconds since the epoch.",
        ALWAYS,
        "time() - mpswatch_start_time_seconds",
    ),
    gauge("poll_interval_seconds", "", "The configured time between two polls.", ALWAYS),
    gauge(
        "sweep_interval_seconds",
        "",
        "The configured time between two scheduled sweeps.",
        "scheduled sweeps are off",
        "time() - mpswatch_sweep_last_success_timestamp_seconds > on (job, instance) group_left ()"
        " 3 * mpswatch_sweep_interval_seconds",
    ),
    gauge("paused", "", "1 while an operator has paused the sweeps, else 0.", ALWAYS, "mpswatch_paused == 1"),
    counter(
        "metrics_errors_total",
        "",
        "Faults of mpswatch itself while it built metrics; what a fault concerns is absent.",
        ALWAYS,
        "increase(mpswatch_metrics_errors_total[1h]) > 0",
    ),
    counter(
        "sink_failures_total",
        "sink",
        "Facts that a sink (archive, latest) did not take.",
        ALWAYS,
        "increase(mpswatch_sink_failures_total[1h]) > 0",
    ),
)

ARCHIVE = (
    counter(
        "archive_writes_total",
        "",
        "Runs written to the archive by this process.",
        ALWAYS,
        "increase(mpswatch_archive_writes_total[1d])",
    ),
    counter(
        "archive_write_failures_total",
        "",
        "Runs that could not be written to the archive.",
        ALWAYS,
        "increase(mpswatch_archive_write_failures_total[1h]) > 0",
    ),
    gauge("archive_bytes", "", "Size of all runs in the archive.", "the archive could not be looked through"),
    gauge(
        "archive_last_success_timestamp_seconds",
        "",
        "When a run was last written to the archive, in seconds since the epoch.",
        "this process has not written one yet",
        "time() - mpswatch_archive_last_success_timestamp_seconds",
    ),
    gauge(
        "archive_remote_missing_runs",
        "",
        "Runs of the local archive that the remote target lacked after the newest round of copying.",
        "no remote target is configured, or no round has been able to tell yet",
        "min_over_time(mpswatch_archive_remote_missing_runs[1h]) > 0",
    ),
    counter(
        "archive_remote_failures_total",
        "",
        "Rounds of copying to the remote target that left something missing, or failed altogether.",
        "no remote target is configured",
        "increase(mpswatch_archive_remote_failures_total[1h]) > 0",
    ),
    gauge(
        "archive_remote_last_success_timestamp_seconds",
        "",
        "When the remote target last had every run of the local archive, in seconds since the epoch.",
        "no remote target is configured, or this process has not seen it complete yet",
        "time() - mpswatch_archive_remote_last_success_timestamp_seconds",
    ),
)

SOURCES = (
    gauge(
        "poll_success",
        "source daemon",
        "1 if the newest poll got its answer from this source, else 0.",
        NO_POLL,
        "mpswatch_poll_success == 0",
    ),
    gauge("poll_duration_seconds", "source daemon", "How long the newest poll asked this source.", NO_POLL),
    gauge(
        "poll_last_success_timestamp_seconds",
        "source daemon",
        "When this source last answered, in seconds since the epoch.",
        "it has not answered this process yet",
        "time() - mpswatch_poll_last_success_timestamp_seconds",
    ),
)

UNKNOWN = (
    gauge(
        "unknown",
        "daemon uuid quantity reason",
        "1 while a quantity (a metric's name without its prefix) is unknown, with the reason.",
        "the quantity is known",
        "min_over_time(mpswatch_unknown[15m]) == 1",
    ),
)
