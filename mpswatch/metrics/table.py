"""Every metric that mpswatch publishes: name, type, labels, meaning, when it is absent, and a query that uses it.

docs/metrics.md is checked against this table, and so are the rules and dashboards: a name is written here once.
"""

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


def _gauge(name: str, labels: str, help_: str, absent: str, example: str = "") -> Spec:
    return Spec(f"mpswatch_{name}", "gauge", tuple(labels.split()), help_, absent, example or f"mpswatch_{name}")


def _counter(name: str, labels: str, help_: str, absent: str, example: str) -> Spec:
    return Spec(f"mpswatch_{name}", "counter", tuple(labels.split()), help_, absent, example)


def _info(name: str, labels: str, help_: str, absent: str, example: str) -> Spec:
    return Spec(f"mpswatch_{name}", "info", tuple(labels.split()), help_, absent, example)


ABOUT_US = (
    _info(
        "build_info",
        "version python_version",
        "The running mpswatch: 1, with its version and that of its Python.",
        ALWAYS,
        "count by (version) (mpswatch_build_info)",
    ),
    _gauge(
        "simulated",
        "",
        "1 if everything here comes from the rehearsal stack, 0 if from a real one.",
        ALWAYS,
        "mpswatch_simulated == 1",
    ),
    _gauge(
        "start_time_seconds",
        "",
        "When this process began to watch, in seconds since the epoch.",
        ALWAYS,
        "time() - mpswatch_start_time_seconds",
    ),
    _gauge("poll_interval_seconds", "", "The configured time between two polls.", ALWAYS),
    _gauge(
        "sweep_interval_seconds",
        "",
        "The configured time between two scheduled sweeps.",
        "scheduled sweeps are off",
        "time() - mpswatch_sweep_last_success_timestamp_seconds > on (job, instance) group_left ()"
        " 3 * mpswatch_sweep_interval_seconds",
    ),
    _gauge("paused", "", "1 while an operator has paused the sweeps, else 0.", ALWAYS, "mpswatch_paused == 1"),
    _counter(
        "metrics_errors_total",
        "",
        "Faults of mpswatch itself while it built metrics; what a fault concerns is absent.",
        ALWAYS,
        "increase(mpswatch_metrics_errors_total[1h]) > 0",
    ),
    _counter(
        "sink_failures_total",
        "sink",
        "Facts that a sink (archive, latest) did not take.",
        ALWAYS,
        "increase(mpswatch_sink_failures_total[1h]) > 0",
    ),
)

ARCHIVE = (
    _counter(
        "archive_writes_total",
        "",
        "Runs written to the archive by this process.",
        ALWAYS,
        "increase(mpswatch_archive_writes_total[1d])",
    ),
    _counter(
        "archive_write_failures_total",
        "",
        "Runs that could not be written to the archive.",
        ALWAYS,
        "increase(mpswatch_archive_write_failures_total[1h]) > 0",
    ),
    _gauge("archive_bytes", "", "Size of all runs in the archive.", "the archive could not be looked through"),
    _gauge(
        "archive_last_success_timestamp_seconds",
        "",
        "When a run was last written to the archive, in seconds since the epoch.",
        "this process has not written one yet",
        "time() - mpswatch_archive_last_success_timestamp_seconds",
    ),
    _gauge(
        "archive_remote_missing_runs",
        "",
        "Runs of the local archive that the remote target lacked after the newest round of copying.",
        "no remote target is configured, or no round has been able to tell yet",
        "min_over_time(mpswatch_archive_remote_missing_runs[1h]) > 0",
    ),
    _counter(
        "archive_remote_failures_total",
        "",
        "Rounds of copying to the remote target that left something missing, or failed altogether.",
        "no remote target is configured",
        "increase(mpswatch_archive_remote_failures_total[1h]) > 0",
    ),
    _gauge(
        "archive_remote_last_success_timestamp_seconds",
        "",
        "When the remote target last had every run of the local archive, in seconds since the epoch.",
        "no remote target is configured, or this process has not seen it complete yet",
        "time() - mpswatch_archive_remote_last_success_timestamp_seconds",
    ),
)

SOURCES = (
    _gauge(
        "poll_success",
        "source daemon",
        "1 if the newest poll got its answer from this source, else 0.",
        NO_POLL,
        "mpswatch_poll_success == 0",
    ),
    _gauge("poll_duration_seconds", "source daemon", "How long the newest poll asked this source.", NO_POLL),
    _gauge(
        "poll_last_success_timestamp_seconds",
        "source daemon",
        "When this source last answered, in seconds since the epoch.",
        "it has not answered this process yet",
        "time() - mpswatch_poll_last_success_timestamp_seconds",
    ),
)

GPUS = (
    _info(
        "gpu_info",
        "uuid index name driver_version",
        "A GPU of this host: 1. driver_version is empty while unknown.",
        NO_POLL + ", or no GPU source answered",
        "count by (driver_version) (mpswatch_gpu_info)",
    ),
    _gauge(
        "gpu_memory_total_bytes",
        "uuid",
        "Device memory of the GPU.",
        NO_POLL + ", or the GPU does not say (unified memory)",
    ),
    _gauge(
        "gpu_memory_used_bytes",
        "uuid",
        "Device memory in use by anybody.",
        NO_POLL + ", or the GPU does not say (unified memory)",
        "mpswatch_gpu_memory_used_bytes / mpswatch_gpu_memory_total_bytes",
    ),
    _gauge(
        "system_memory_total_bytes",
        "",
        "Memory of the host (MemTotal): the denominator where a GPU has none of its own (unified memory).",
        NO_POLL + ", or /proc/meminfo does not say",
        "sum without (uuid) (mpswatch_foreign_memory_bytes) / mpswatch_system_memory_total_bytes",
    ),
    _gauge(
        "system_memory_available_bytes",
        "",
        "Memory of the host that can still be had without swapping (MemAvailable).",
        NO_POLL + ", or /proc/meminfo does not say",
        "mpswatch_system_memory_available_bytes / mpswatch_system_memory_total_bytes",
    ),
    _gauge(
        "gpu_compute_mode",
        "uuid mode",
        "1 for the compute mode that the GPU is in, 0 for others; in an exclusive mode nobody can compute beside MPS.",
        NO_POLL + ", or the GPU does not say",
        'mpswatch_gpu_compute_mode{mode="default"} == 1',
    ),
)

MPS = (
    _gauge(
        "mps_up",
        "daemon",
        "1 if the MPS control daemon answered, 0 if it is not there.",
        NO_POLL + ", or it could not be asked (no control program, no answer in time)",
        "max_over_time(mpswatch_mps_up[5m]) == 0",
    ),
    _info(
        "mps_server_info",
        "daemon server_uid multi_user protocol",
        "A running MPS server: 1. A label that is unknown is empty.",
        NO_POLL + ", the daemon did not say, or it runs no server",
        'mpswatch_mps_server_info{multi_user="false"}',
    ),
    _gauge(
        "mps_server_state",
        "daemon state",
        "1 for the state that an MPS server of this daemon is in, 0 for others; none: no server, other: a new word.",
        NO_POLL + ", or the daemon did not say",
        'mpswatch_mps_server_state{state="fault"} == 1',
    ),
    _counter(
        "mps_server_changes_total",
        "daemon",
        "How often another MPS server (pid and start time) was found than before.",
        ALWAYS,
        "increase(mpswatch_mps_server_changes_total[1h]) > 2",
    ),
    _counter(
        "gpu_faults_total",
        "daemon",
        "Fatal GPU errors that MPS servers wrote to their log (server.log).",
        "the log is not being read",
        "increase(mpswatch_gpu_faults_total[1h]) > 0",
    ),
    _gauge(
        "mps_contexts_used",
        "daemon",
        "Client contexts on this daemon's servers, ours included.",
        NO_POLL + ", or the daemon did not say",
        "mpswatch_mps_contexts_limit - mpswatch_mps_contexts_used < 4",
    ),
    _gauge(
        "mps_contexts_limit",
        "daemon",
        "Client contexts that this daemon's servers hold at most: sweep.context_limit, where no command tells it.",
        NO_POLL + ", or the daemon runs no server",
    ),
    _gauge(
        "mps_waiting_clients",
        "daemon",
        "Clients of another uid that wait for this daemon's server to be shut down (control.log).",
        NO_POLL + ", the daemon did not say which server runs, or control.log is not being read",
        "max_over_time(mpswatch_mps_waiting_clients[5m]) > 0",
    ),
    _gauge(
        "mps_server_shutdown_armed",
        "daemon",
        "1 if the server is to be shut down at its first idle moment for a client of another uid, even a dead one.",
        NO_POLL + ", the daemon did not say which server runs, or control.log is not being read",
        "max_over_time(mpswatch_mps_server_shutdown_armed[5m]) == 1",
    ),
    _gauge(
        "mps_default_active_thread_ratio",
        "daemon",
        "The share of multiprocessors that the daemon gives its clients at most (servers started later only).",
        NO_POLL + ", or the daemon did not say",
        "mpswatch_mps_default_active_thread_ratio < 1",
    ),
)

TENANTS = (
    _gauge(
        "managed_clients",
        "daemon",
        "Processes that are MPS clients of this daemon, without our own.",
        NO_POLL + ", or the daemon's client list is unknown",
        "max_over_time(mpswatch_managed_clients[5m])",
    ),
    _gauge(
        "managed_memory_bytes",
        "daemon uuid",
        "Memory of managed clients on the GPU, summed over those whose memory is known; 0 if there are none.",
        NO_POLL + ", tenants are unknown, or no managed client's memory is known",
    ),
    _gauge(
        "managed_memory_unknown_clients",
        "daemon uuid",
        "Managed clients that are missing from the memory sum, because theirs is unknown.",
        NO_POLL + ", or tenants are unknown",
        "mpswatch_managed_memory_unknown_clients > 0",
    ),
    _gauge(
        "own_clients",
        "daemon",
        "Measuring clients of mpswatch on this daemon; they are in no other count.",
        NO_POLL + ", or the daemon's client list is unknown",
    ),
    _gauge(
        "unresolved_tenants",
        "uuid",
        "Processes on the GPU that could not be told managed or foreign; uuid is empty where the GPU is unknown.",
        NO_POLL + ", or the GPU's processes are unknown",
        "min_over_time(mpswatch_unresolved_tenants[15m]) > 0",
    ),
    _gauge(
        "client_list_disagreements",
        "daemon uuid",
        "Processes that only the daemon's client list or only the driver's MPS list names.",
        NO_POLL + ", or one of the two lists is unknown",
        "min_over_time(mpswatch_client_list_disagreements[15m]) > 0",
    ),
    _gauge(
        "foreign_tenants",
        "uuid",
        "Processes on the GPU that are no client of any watched daemon, nor its server.",
        NO_POLL + ", the GPU's processes are unknown, or some may be managed and their daemon is silent",
        "max_over_time(mpswatch_foreign_tenants[5m]) > 0",
    ),
    _gauge(
        "foreign_memory_bytes",
        "uuid",
        "Memory of foreign tenants on the GPU, summed over those whose memory is known; 0 if there are none.",
        NO_POLL + ", tenants are unknown, or no foreign tenant's memory is known",
        "mpswatch_foreign_memory_bytes / mpswatch_gpu_memory_total_bytes",
    ),
    _gauge(
        "foreign_memory_unknown_tenants",
        "uuid",
        "Foreign tenants that are missing from the memory sum, because theirs is unknown.",
        NO_POLL + ", or the GPU's processes are unknown",
        "mpswatch_foreign_memory_unknown_tenants > 0",
    ),
    _gauge(
        "foreign_tenant_memory_bytes",
        "uuid process_name",
        "Memory of foreign tenants by process name: the largest, the rest as other; empty where the name is unknown.",
        NO_POLL + ", there are none, or their memory is unknown",
        "topk(5, mpswatch_foreign_tenant_memory_bytes)",
    ),
    _gauge(
        "tenant_memory_bytes",
        "daemon uuid kind process_name pid",
        "Memory of each process on the GPU; only with pid labels switched on.",
        NO_POLL + ", pid labels are off (the default), or its memory is unknown",
        'mpswatch_tenant_memory_bytes{kind="managed"}',
    ),
    _gauge(
        "welcome_tenants",
        "uuid",
        "Foreign processes on the GPU that configuration welcomes (tenants.welcome, desktops); not in foreign_tenants.",
        NO_POLL + ", the GPU's processes are unknown, or some may be managed and their daemon is silent",
    ),
    _gauge(
        "welcome_memory_bytes",
        "uuid",
        "Memory of welcome tenants on the GPU, summed over those whose memory is known; 0 if there are none.",
        NO_POLL + ", tenants are unknown, or no welcome tenant's memory is known",
    ),
    _gauge(
        "expected_clients",
        "expectation",
        "Processes of this service that configuration expects to be MPS clients, at least (tenants.expected).",
        NO_POLL + ", or nothing is expected",
    ),
    _gauge(
        "expected_clients_managed",
        "expectation",
        "Processes of this service that are MPS clients.",
        NO_POLL + ", or tenants are not all known",
        "max_over_time(mpswatch_expected_clients_managed[5m]) < mpswatch_expected_clients",
    ),
    _gauge(
        "escaped_clients",
        "expectation",
        "Processes of this service that run on the GPU outside MPS; they are foreign, too.",
        NO_POLL + ", or tenants are not all known",
        "max_over_time(mpswatch_escaped_clients[5m]) > 0",
    ),
    _gauge(
        "pattern_matches",
        "pattern",
        "Processes on the GPU that this configured pattern (expected or welcome) matches.",
        NO_POLL + ", tenants are not all known, or nothing is configured",
        "max_over_time(mpswatch_pattern_matches[1d]) == 0",
    ),
    _gauge(
        "tenant_group_processes",
        "uuid kind by group",
        "Processes on the GPU by unit, container, pod and such (metrics.tenant_groups); group is empty without one.",
        NO_POLL + ", or no grouping is configured (the default)",
        'sum by (group) (mpswatch_tenant_group_processes{by="unit"})',
    ),
    _gauge(
        "tenant_group_memory_bytes",
        "uuid kind by group",
        "Memory of processes on the GPU by group: the largest metrics.tenant_names, the rest as other.",
        NO_POLL + ", no grouping is configured (the default), or no memory in the group is known",
        'topk(5, mpswatch_tenant_group_memory_bytes{by="pod"})',
    ),
)

CAPS = (
    _gauge(
        "cap_tflops",
        "daemon uuid plan cap",
        "Throughput of a managed client under this cap (active thread percentage), in the newest run.",
        "no run, the newest is older than three intervals, or the cell failed (mpswatch_cap_unknown)",
        'mpswatch_cap_tflops{plan="quick"}',
    ),
    _gauge(
        "cap_sm_count",
        "daemon uuid plan cap",
        "Streaming multiprocessors that the client saw under this cap.",
        "no run, the newest is older than three intervals, or the client never attached",
    ),
    _gauge(
        "cap_sm_count_expected",
        "daemon uuid plan cap",
        "The most streaming multiprocessors that this cap allows on this GPU.",
        "no run, the newest is older than three intervals, or the GPU's total is unknown",
        "mpswatch_cap_sm_count / mpswatch_cap_sm_count_expected",
    ),
    _gauge(
        "cap_sm_count_as_expected",
        "daemon uuid plan cap",
        "1 if the number of multiprocessors is what the cap implies, else 0: then the cap did not take hold.",
        "no run, the newest is older than three intervals, or one of the two counts is unknown",
        "max_over_time(mpswatch_cap_sm_count_as_expected[3h]) == 0",
    ),
    _gauge(
        "cap_self_managed",
        "daemon uuid plan cap",
        "1 if the measuring client was seen in the daemon's own list, else 0: then it ran outside MPS.",
        "no run, the newest is older than three intervals, or the list could not be had",
        "max_over_time(mpswatch_cap_self_managed[3h]) == 0",
    ),
    _gauge(
        "cap_verdict",
        "daemon uuid plan cap verdict",
        "1 for the verdict on this cap (enforced, not_enforced, unknown), 0 for the others; see docs/method.md.",
        "no run, the newest is older than three intervals, or it was recorded without verdicts",
        'max_over_time(mpswatch_cap_verdict{verdict="not_enforced"}[3h]) == 1',
    ),
    _gauge(
        "cap_tflops_interval_low",
        "daemon uuid plan cap",
        "Lower end of the 95 % interval of mpswatch_cap_tflops, a burst figure.",
        "no run, the newest is older than three intervals, or its plan takes no samples (quick)",
        "mpswatch_cap_tflops_interval_high - mpswatch_cap_tflops_interval_low",
    ),
    _gauge(
        "cap_tflops_interval_high",
        "daemon uuid plan cap",
        "Upper end of the 95 % interval of mpswatch_cap_tflops, a burst figure.",
        "no run, the newest is older than three intervals, or its plan takes no samples (quick)",
    ),
    _gauge(
        "cap_sustained_tflops",
        "daemon uuid plan cap",
        "Throughput under load that goes on, once clocks and times settled: another quantity than cap_tflops.",
        "no run, the newest is older than three intervals, or its plan does not measure it (quick)",
    ),
    _gauge(
        "cap_sustained_tflops_interval_low",
        "daemon uuid plan cap",
        "Lower end of the 95 % interval of mpswatch_cap_sustained_tflops.",
        "no run, the newest is older than three intervals, or its plan does not measure it (quick)",
    ),
    _gauge(
        "cap_sustained_tflops_interval_high",
        "daemon uuid plan cap",
        "Upper end of the 95 % interval of mpswatch_cap_sustained_tflops.",
        "no run, the newest is older than three intervals, or its plan does not measure it (quick)",
    ),
    _gauge(
        "cap_unknown",
        "daemon uuid plan cap reason",
        "1 for a cap without a throughput, with the reason; cap is empty before the first run.",
        "the throughput is known",
        "count by (reason) (mpswatch_cap_unknown)",
    ),
)

INTERFERENCE = (
    _gauge(
        "interference_slowdown_ratio",
        "daemon uuid victim_cap victim_kind aggressor_cap aggressor_kind",
        "Share of its rate alone that a client of ours lost beside another one; at most 100 pairs of a run.",
        "interference was not measured, the newest is older than three intervals, or the pair was not measured",
        'max by (victim_cap) (mpswatch_interference_slowdown_ratio{victim_kind="matmul"})',
    ),
    _gauge(
        "interference_slowdown_ratio_interval_low",
        "daemon uuid victim_cap victim_kind aggressor_cap aggressor_kind",
        "Lower end of the 95 % interval of mpswatch_interference_slowdown_ratio.",
        "interference was not measured, the newest is older than three intervals, or the pair has no interval",
    ),
    _gauge(
        "interference_slowdown_ratio_interval_high",
        "daemon uuid victim_cap victim_kind aggressor_cap aggressor_kind",
        "Upper end of the 95 % interval of mpswatch_interference_slowdown_ratio.",
        "interference was not measured, the newest is older than three intervals, or the pair has no interval",
    ),
    _gauge(
        "interference_complete",
        "daemon uuid",
        "1 if every pair of the newest interference measurement was measured, else 0.",
        "interference was not measured, or the newest is older than three intervals",
    ),
    _gauge(
        "interference_last_run_timestamp_seconds",
        "daemon uuid",
        "When the newest interference measurement finished, in seconds since the epoch.",
        "interference was not measured",
        "time() - mpswatch_interference_last_run_timestamp_seconds",
    ),
)

SWEEPS = (
    _gauge(
        "sweep_complete",
        "daemon uuid plan",
        "1 if every cap of the newest run was measured, else 0.",
        "no run, or the newest is older than three intervals",
        "max_over_time(mpswatch_sweep_complete[3h]) == 0",
    ),
    _gauge(
        "sweep_duration_seconds",
        "daemon uuid plan",
        "How long the newest run took.",
        "no run, the newest is older than three intervals, or the clock was stepped meanwhile",
    ),
    _gauge(
        "sweep_last_run_timestamp_seconds",
        "daemon uuid plan",
        "When the newest run finished, complete or not, in seconds since the epoch.",
        "no run is known",
        "time() - mpswatch_sweep_last_run_timestamp_seconds",
    ),
    _gauge(
        "sweep_last_success_timestamp_seconds",
        "daemon uuid plan",
        "When the newest complete run finished, in seconds since the epoch.",
        "no complete run is known",
        "time() - mpswatch_sweep_last_success_timestamp_seconds",
    ),
    _counter(
        "sweeps_total",
        "daemon uuid plan outcome",
        "Attempts to sweep: complete, partial, failed (no cell measured), refused (not begun).",
        "sweeps of this GPU are not scheduled, and none was tried",
        "sum by (outcome) (increase(mpswatch_sweeps_total[1d]))",
    ),
    _counter(
        "sweep_refusals_total",
        "daemon uuid plan reason",
        "Sweeps that the preflight refused, by reason.",
        "sweeps of this GPU are not scheduled, and none was refused",
        "increase(mpswatch_sweep_refusals_total[6h]) > 0",
    ),
    _gauge(
        "last_sweep_refused",
        "daemon uuid plan reason",
        "1 while the newest attempt to sweep was refused, with the reason.",
        "the newest attempt was not refused",
        "min_over_time(mpswatch_last_sweep_refused[3h]) == 1",
    ),
    _gauge(
        "sweep_running",
        "daemon uuid",
        "1 while this process sweeps the GPU, else 0.",
        "sweeps of this GPU are not scheduled, and none was tried",
    ),
    _gauge(
        "stuck_clients",
        "daemon uuid",
        "Measuring clients that did not leave when asked; they are left alone, and no sweep starts meanwhile.",
        "sweeps of this GPU are not scheduled, and none was tried",
        "mpswatch_stuck_clients > 0",
    ),
)

UNKNOWN = (
    _gauge(
        "unknown",
        "daemon uuid quantity reason",
        "1 while a quantity (a metric's name without its prefix) is unknown, with the reason.",
        "the quantity is known",
        "min_over_time(mpswatch_unknown[15m]) == 1",
    ),
)

HISTORY = (
    _gauge(
        "cap_history_standing",
        "daemon uuid plan cap quantity standing",
        "1 for how the newest run stands against its own history: usual, slower_once, below, above or explained.",
        "no run, the newest is older than three intervals, or its history is too short or could not be read",
        'max_over_time(mpswatch_cap_history_standing{standing="below"}[10m]) == 1',
    ),
    _gauge(
        "cap_history_median_tflops",
        "daemon uuid plan cap quantity",
        "Median throughput of the earlier runs that the newest one is held against.",
        "no run, the newest is older than three intervals, or its history is too short or could not be read",
        'mpswatch_cap_tflops / ignoring (quantity) mpswatch_cap_history_median_tflops{quantity="tflops"}',
    ),
    _gauge(
        "cap_history_low_tflops",
        "daemon uuid plan cap quantity",
        "The least throughput that the history of this cap calls usual.",
        "no run, the newest is older than three intervals, or its history is too short or could not be read",
    ),
    _gauge(
        "cap_history_runs",
        "daemon uuid plan cap quantity",
        "Earlier runs that the newest one is held against, at most 40.",
        "no run, the newest is older than three intervals, or its history could not be read",
    ),
)

TABLE: tuple[Spec, ...] = (
    *ABOUT_US,
    *ARCHIVE,
    *SOURCES,
    *GPUS,
    *MPS,
    *TENANTS,
    *CAPS,
    *HISTORY,
    *SWEEPS,
    *INTERFERENCE,
    *UNKNOWN,
)
BY_NAME = {spec.name: spec for spec in TABLE}
