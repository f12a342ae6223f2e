"""The GPUs and the MPS stack, from polls."""

from __future__ import annotations

from mpswatch.metrics.table.spec import ALWAYS, NO_POLL, counter, gauge, info

GPUS = (
    info(
        "gpu_info",
        "uuid index name driver_version",
        "A GPU of this host: 1. driver_version is empty while unknown.",
        NO_POLL + ", or no GPU source answered",
        "count by (driver_version) (mpswatch_gpu_info)",
    ),
    info(
        "mig_device_info",
        "uuid mig_index mig_uuid profile",
        "An instance of a GPU that is partitioned by MIG: 1. mig_uuid and profile are empty where the source does not"
        " tell.",
        NO_POLL + ", no GPU is partitioned, or the instances could not be listed",
        "count by (uuid, profile) (mpswatch_mig_device_info)",
    ),
    gauge(
        "gpu_memory_total_bytes",
        "uuid",
        "Device memory of the GPU.",
        NO_POLL + ", or the GPU does not say (unified memory)",
    ),
    gauge(
        "gpu_memory_used_bytes",
        "uuid",
        "Device memory in use by anybody.",
        NO_POLL + ", or the GPU does not say (unified memory)",
        "mpswatch_gpu_memory_used_bytes / mpswatch_gpu_memory_total_bytes",
    ),
    gauge(
        "system_memory_total_bytes",
        "",
        "Memory of the host (MemTotal): the denominator where a GPU has none of its own (unified memory).",
        NO_POLL + ", or /proc/meminfo does not say",
        "sum without (uuid) (mpswatch_foreign_memory_bytes) / mpswatch_system_memory_total_bytes",
    ),
    gauge(
        "system_memory_available_bytes",
        "",
        "Memory of the host that can still be had without swapping (MemAvailable).",
        NO_POLL + ", or /proc/meminfo does not say",
        "mpswatch_system_memory_available_bytes / mpswatch_system_memory_total_bytes",
    ),
    gauge(
        "gpu_compute_mode",
        "uuid mode",
        "1 for the compute mode that the GPU is in, 0 for others; in an exclusive mode nobody can compute beside MPS.",
        NO_POLL + ", or the GPU does not say",
        'mpswatch_gpu_compute_mode{mode="default"} == 1',
    ),
)

MPS = (
    gauge(
        "mps_up",
        "daemon",
        "1 if the MPS control daemon answered, 0 if it is not there.",
        NO_POLL + ", or it could not be asked (no control program, no answer in time)",
        "max_over_time(mpswatch_mps_up[5m]) == 0",
    ),
    info(
        "mps_server_info",
        "daemon server_uid multi_user protocol",
        "A running MPS server: 1. A label that is unknown is empty.",
        NO_POLL + ", the daemon did not say, or it runs no server",
        'mpswatch_mps_server_info{multi_user="false"}',
    ),
    gauge(
        "mps_server_state",
        "daemon state",
        "1 for the state that an MPS server of this daemon is in, 0 for others; none: no server, other: a new word.",
        NO_POLL + ", or the daemon did not say",
        'mpswatch_mps_server_state{state="fault"} == 1',
    ),
    counter(
        "mps_server_changes_total",
        "daemon",
        "How often another MPS server (pid and start time) was found than before.",
        ALWAYS,
        "increase(mpswatch_mps_server_changes_total[1h]) > 2",
    ),
    counter(
        "gpu_faults_total",
        "daemon",
        "Fatal GPU errors that MPS servers wrote to their log (server.log).",
        "the log is not being read",
        "increase(mpswatch_gpu_faults_total[1h]) > 0",
    ),
    gauge(
        "mps_contexts_used",
        "daemon",
        "Client contexts on this daemon's servers, ours included; a client on several GPUs counts once.",
        NO_POLL + ", or the daemon did not say",
        "mpswatch_mps_contexts_limit - mpswatch_mps_contexts_used < 4",
    ),
    gauge(
        "mps_contexts_limit",
        "daemon",
        "Client contexts that this daemon's servers hold at most: sweep.context_limit, where no command tells it.",
        NO_POLL + ", or the daemon runs no server",
    ),
    gauge(
        "mps_waiting_clients",
        "daemon",
        "Clients of another uid that wait for this daemon's server to be shut down (control.log).",
        NO_POLL + ", the daemon did not say which server runs, or control.log is not being read",
        "max_over_time(mpswatch_mps_waiting_clients[5m]) > 0",
    ),
    gauge(
        "mps_server_shutdown_armed",
        "daemon",
        "1 if the server is to be shut down at its first idle moment for a client of another uid, even a dead one.",
        NO_POLL + ", the daemon did not say which server runs, or control.log is not being read",
        "max_over_time(mpswatch_mps_server_shutdown_armed[5m]) == 1",
    ),
    gauge(
        "mps_default_active_thread_ratio",
        "daemon",
        "The share of multiprocessors that the daemon gives its clients at most (servers started later only).",
        NO_POLL + ", or the daemon did not say",
        "mpswatch_mps_default_active_thread_ratio < 1",
    ),
    gauge(
        "mps_server_active_thread_ratio",
        "daemon",
        "The share of multiprocessors that the running server gives each client at most; asked every ten minutes.",
        NO_POLL + ", the daemon runs no server, it did not say, or it speaks protocol 3",
        "mpswatch_mps_server_active_thread_ratio < 1",
    ),
    gauge(
        "mps_server_pinned_memory_limit_bytes",
        "daemon uuid",
        "Memory that the running server gives each client at most, in whole units as printed; asked every ten minutes.",
        NO_POLL + ", none is set (nothing in mpswatch_unknown then), or as for the ratio",
        "mpswatch_mps_server_pinned_memory_limit_bytes < 2 * 1024 * 1024 * 1024",
    ),
    gauge(
        "mps_default_pinned_memory_limit_bytes",
        "daemon uuid",
        "Memory that servers started later give each client at most; asked every ten minutes.",
        NO_POLL
        + ", none is set (nothing in mpswatch_unknown then), it is not known which counts or where, or as the ratio",
    ),
)
