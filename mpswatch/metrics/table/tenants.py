"""The processes on the GPUs, from polls."""

from __future__ import annotations

from mpswatch.metrics.table.spec import NO_POLL, gauge

TENANTS = (
    gauge(
        "managed_clients",
        "daemon",
        "Processes that are MPS clients of this daemon, without our own.",
        NO_POLL + ", or the daemon's client list is unknown",
        "max_over_time(mpswatch_managed_clients[5m])",
    ),
    gauge(
        "managed_memory_bytes",
        "daemon uuid",
        "Memory of managed clients on the GPU, summed over those whose memory is known; 0 if there are none.",
        NO_POLL + ", tenants are unknown, or no managed client's memory is known",
    ),
    gauge(
        "managed_memory_unknown_clients",
        "daemon uuid",
        "Managed clients that are missing from the memory sum, because theirs is unknown.",
        NO_POLL + ", or tenants are unknown",
        "mpswatch_managed_memory_unknown_clients > 0",
    ),
    gauge(
        "own_clients",
        "daemon",
        "Measuring clients of mpswatch on this daemon; they are in no other count.",
        NO_POLL + ", or the daemon's client list is unknown",
    ),
    gauge(
        "unresolved_tenants",
        "uuid",
        "Processes on the GPU that could not be told managed or foreign; uuid is empty where the GPU is unknown.",
        NO_POLL + ", or the GPU's processes are unknown",
        "min_over_time(mpswatch_unresolved_tenants[15m]) > 0",
    ),
    gauge(
        "client_list_disagreements",
        "daemon uuid",
        "Processes that only the daemon's client list or only the driver's MPS list names.",
        NO_POLL + ", or one of the two lists is unknown",
        "min_over_time(mpswatch_client_list_disagreements[15m]) > 0",
    ),
    gauge(
        "foreign_tenants",
        "uuid",
        "Processes on the GPU that are no client of any watched daemon, nor its server; while a daemon is silent at "
        "least so many: MPS clients that are not known to be foreign are unresolved_tenants then.",
        NO_POLL + ", the GPU's processes are unknown, or some may be managed and their daemon is silent",
        "max_over_time(mpswatch_foreign_tenants[5m]) > 0",
    ),
    gauge(
        "foreign_memory_bytes",
        "uuid",
        "Memory of foreign tenants on the GPU, summed over those whose memory is known; 0 if there are none.",
        NO_POLL + ", tenants are unknown, or no foreign tenant's memory is known",
        "mpswatch_foreign_memory_bytes / mpswatch_gpu_memory_total_bytes",
    ),
    gauge(
        "foreign_memory_unknown_tenants",
        "uuid",
        "Foreign tenants that are missing from the memory sum, because theirs is unknown.",
        NO_POLL + ", or the GPU's processes are unknown",
        "mpswatch_foreign_memory_unknown_tenants > 0",
    ),
    gauge(
        "foreign_tenant_memory_bytes",
        "uuid process_name",
        "Memory of foreign tenants by process name: the largest, the rest as other; empty where the name is unknown.",
        NO_POLL + ", there are none, or their memory is unknown",
        "topk(5, mpswatch_foreign_tenant_memory_bytes)",
    ),
    gauge(
        "tenant_memory_bytes",
        "daemon uuid kind process_name pid",
        "Memory of each process on the GPU; only with pid labels switched on.",
        NO_POLL + ", pid labels are off (the default), or its memory is unknown",
        'mpswatch_tenant_memory_bytes{kind="managed"}',
    ),
    gauge(
        "welcome_tenants",
        "uuid",
        "Foreign processes on the GPU that configuration welcomes (tenants.welcome, desktops); not in foreign_tenants.",
        NO_POLL + ", the GPU's processes are unknown, or some may be managed and their daemon is silent",
    ),
    gauge(
        "welcome_memory_bytes",
        "uuid",
        "Memory of welcome tenants on the GPU, summed over those whose memory is known; 0 if there are none.",
        NO_POLL + ", tenants are unknown, or no welcome tenant's memory is known",
    ),
    gauge(
        "expected_clients",
        "expectation",
        "Processes of this service that configuration expects to be MPS clients, at least (tenants.expected).",
        NO_POLL + ", or nothing is expected",
    ),
    gauge(
        "expected_clients_managed",
        "expectation",
        "Processes of this service that are MPS clients.",
        NO_POLL + ", or tenants are not all known",
        "max_over_time(mpswatch_expected_clients_managed[5m]) < mpswatch_expected_clients",
    ),
    gauge(
        "escaped_clients",
        "expectation",
        "Processes of this service that run on the GPU outside MPS, at least; they are foreign, too.",
        NO_POLL + ", or tenants are not all known and none is seen",
        "max_over_time(mpswatch_escaped_clients[5m]) > 0",
    ),
    gauge(
        "pattern_matches",
        "pattern",
        "Processes on the GPU that this configured pattern (expected or welcome) matches.",
        NO_POLL + ", tenants are not all known, or nothing is configured",
        "max_over_time(mpswatch_pattern_matches[1d]) == 0",
    ),
    gauge(
        "tenant_group_processes",
        "uuid kind by group",
        "Processes on the GPU by unit, container, pod and such (metrics.tenant_groups); group is empty without one.",
        NO_POLL + ", or no grouping is configured (the default)",
        'sum by (group) (mpswatch_tenant_group_processes{by="unit"})',
    ),
    gauge(
        "tenant_group_memory_bytes",
        "uuid kind by group",
        "Memory of processes on the GPU by group: the largest metrics.tenant_names, the rest as other.",
        NO_POLL + ", no grouping is configured (the default), or no memory in the group is known",
        'topk(5, mpswatch_tenant_group_memory_bytes{by="pod"})',
    ),
)
