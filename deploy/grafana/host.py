"""One host: what is, what was measured, who is there, what the server does, and the watcher itself."""

from __future__ import annotations

from panels import INSTANCE, JOB, Json, bars, dashboard, row, stat, table, target, timeseries

S = 'job=~"$job", instance=~"$instance"'


def host() -> Json:
    panels = [
        row("Now"),
        stat(
            "MPS control daemon",
            "Whether the control daemon answers at its pipe directory. No value: it could not be asked.",
            "none",
            f"mpswatch_mps_up{{{S}}}",
            "{{daemon}}",
            words={"0": ("down", "red"), "1": ("up", "green")},
        ),
        stat(
            "MPS server state",
            "The state that the server is in: initializing, active, fault; none: it runs no server.",
            "none",
            f"mpswatch_mps_server_state{{{S}}} == 1",
            "{{state}}",
            by_name=True,
        ),
        stat(
            "Managed clients",
            "MPS clients of the control daemon, without our own measuring clients.",
            "short",
            f"sum by (instance, daemon) (mpswatch_managed_clients{{{S}}})",
            "{{daemon}}",
        ),
        stat(
            "Foreign tenants",
            "Processes on the GPU that no watched control daemon manages. The MPS server is not one of them.",
            "short",
            f"sum by (instance) (mpswatch_foreign_tenants{{{S}}})",
            "{{instance}}",
            bad_from=1,
        ),
        stat(
            "Last complete sweep",
            "How long ago the newest run that measured every cap ended. Red after three default intervals.",
            "s",
            f"time() - max by (instance, daemon, uuid, plan) (mpswatch_sweep_last_success_timestamp_seconds{{{S}}})",
            "{{plan}}",
            bad_from=3 * 3600,
        ),
        stat(
            "Stuck measuring clients",
            "Clients of ours that did not leave when asked. They are left alone; no sweep starts meanwhile.",
            "short",
            f"sum by (instance) (mpswatch_stuck_clients{{{S}}})",
            "{{instance}}",
            bad_from=1,
        ),
        row("Caps"),
        bars(
            "Burst throughput by cap, newest run",
            "What a managed client reached after a rest under each cap (active thread percentage). No bar: it failed.",
            "tflops",
            f"sort_desc(mpswatch_cap_tflops{{{S}}})",
            "{{plan}} {{cap}} %",
        ),
        timeseries(
            "Burst throughput by cap",
            "Each run holds until the next. A gap: the cap failed, or no run for three intervals.",
            "tflops",
            target(f"mpswatch_cap_tflops{{{S}}}", "{{instance}} {{plan}} {{cap}} %"),
            steps=True,
        ),
        timeseries(
            "Sustained throughput by cap",
            "Under load that goes on, where power holds clocks back: plan thorough alone. No burst is comparable.",
            "tflops",
            target(f"mpswatch_cap_sustained_tflops{{{S}}}", "{{instance}} {{plan}} {{cap}} %"),
            steps=True,
        ),
        timeseries(
            "SM clock by cap",
            "While burst and sustained were measured, each by itself; in plan quick as it was seen after the pass.",
            "hertz",
            target(f"mpswatch_cap_sm_clock_hertz{{{S}}}", "{{instance}} {{plan}} {{cap}} % {{quantity}}"),
            steps=True,
        ),
        timeseries(
            "Share of the best cap",
            "Burst throughput of each cap over that of the host's best cap. A low cap near 100 % does not shape.",
            "percentunit",
            target(
                f"mpswatch_cap_tflops{{{S}}} / on (job, instance, daemon, uuid, plan) group_left ()"
                f" max by (job, instance, daemon, uuid, plan) (mpswatch_cap_tflops{{{S}}})",
                "{{instance}} {{plan}} {{cap}} %",
            ),
            steps=True,
            maximum=1.05,
        ),
        table(
            "Multiprocessors by cap",
            "Streaming multiprocessors that the client saw, the most that the cap allows, and whether they agree (1).",
            {
                "Seen": (f"mpswatch_cap_sm_count{{{S}}}", "short"),
                "At most": (f"mpswatch_cap_sm_count_expected{{{S}}}", "short"),
                "As expected": (f"mpswatch_cap_sm_count_as_expected{{{S}}}", "bool_yes_no"),
                "Managed": (f"mpswatch_cap_self_managed{{{S}}}", "bool_yes_no"),
            },
            ["instance", "plan", "cap"],
        ),
        row("Tenants"),
        timeseries(
            "Managed clients and foreign tenants",
            "Processes by kind. Unresolved ones could not be told apart. A gap: the watcher could not see.",
            "short",
            target(f"mpswatch_managed_clients{{{S}}}", "{{instance}} managed by {{daemon}}"),
            target(f"mpswatch_foreign_tenants{{{S}}}", "{{instance}} foreign on {{uuid}}"),
            target(f"mpswatch_unresolved_tenants{{{S}}}", "{{instance}} unresolved on {{uuid}}"),
            steps=True,
        ),
        timeseries(
            "GPU memory by who holds it",
            "Memory of managed clients and of foreign tenants, and the total. Only what is known is summed.",
            "bytes",
            target(f"mpswatch_managed_memory_bytes{{{S}}}", "{{instance}} managed on {{uuid}}"),
            target(f"mpswatch_foreign_memory_bytes{{{S}}}", "{{instance}} foreign on {{uuid}}"),
            target(f"mpswatch_gpu_memory_used_bytes{{{S}}}", "{{instance}} in use on {{uuid}}"),
            target(f"mpswatch_gpu_memory_total_bytes{{{S}}}", "{{instance}} total of {{uuid}}"),
        ),
        table(
            "Who is foreign",
            "Foreign tenants by process name, the largest first; the smallest share the name other.",
            {"Memory": (f"sort_desc(mpswatch_foreign_tenant_memory_bytes{{{S}}})", "bytes")},
            ["instance", "uuid", "process_name"],
        ),
        timeseries(
            "Where MPS and the driver disagree",
            "Processes that only the daemon's client list or only the driver's MPS list names. Spikes are normal.",
            "short",
            target(f"mpswatch_client_list_disagreements{{{S}}}", "{{instance}} {{daemon}} {{uuid}}"),
            steps=True,
        ),
        row("Server"),
        timeseries(
            "Server changes and GPU faults",
            "Other server processes than before, and fatal GPU errors in server.log, within each step.",
            "short",
            target(
                f"increase(mpswatch_mps_server_changes_total{{{S}}}[$__rate_interval])",
                "{{instance}} changes {{daemon}}",
            ),
            target(f"increase(mpswatch_gpu_faults_total{{{S}}}[$__rate_interval])", "{{instance}} faults {{daemon}}"),
        ),
        timeseries(
            "Client contexts",
            "Contexts in use on the server, ours included. It holds 48 (driver 580) or 60 (newer); no command tells.",
            "short",
            target(f"mpswatch_mps_contexts_used{{{S}}}", "{{instance}} used {{daemon}}"),
            steps=True,
        ),
        timeseries(
            "Server state over time",
            "One line for each state, 1 while the server is in it.",
            "none",
            target(f"mpswatch_mps_server_state{{{S}}}", "{{instance}} {{state}}"),
            steps=True,
            maximum=1,
        ),
        table(
            "Server",
            "The running server: its user, whether it serves every user, and the protocol that it speaks.",
            {"Running": (f"mpswatch_mps_server_info{{{S}}}", "bool_yes_no")},
            ["instance", "daemon", "server_uid", "multi_user", "protocol"],
        ),
        row("Sweeps"),
        timeseries(
            "Sweep outcomes",
            "Attempts within each step: complete, partial, failed (nothing measured), refused (not begun).",
            "short",
            target(
                f"sum by (instance, plan, outcome) (increase(mpswatch_sweeps_total{{{S}}}[$__rate_interval]))",
                "{{instance}} {{plan}} {{outcome}}",
            ),
        ),
        timeseries(
            "Refusals by reason",
            "Sweeps that the preflight refused within each step, so as not to disturb the services.",
            "short",
            target(
                f"topk(5, sum by (instance, reason) ("
                f"increase(mpswatch_sweep_refusals_total{{{S}}}[$__rate_interval])))",
                "{{instance}} {{reason}}",
            ),
        ),
        timeseries(
            "Since the last complete sweep",
            "The age of the newest complete run, beside the configured interval.",
            "s",
            target(f"time() - mpswatch_sweep_last_success_timestamp_seconds{{{S}}}", "{{instance}} {{plan}}"),
            target(f"mpswatch_sweep_interval_seconds{{{S}}}", "{{instance}} interval"),
        ),
        timeseries(
            "Duration of sweeps",
            "How long the newest run took, from start to end.",
            "s",
            target(f"mpswatch_sweep_duration_seconds{{{S}}}", "{{instance}} {{plan}}"),
            steps=True,
        ),
        row("The watcher itself"),
        timeseries(
            "How long sources take to answer",
            "Time of the newest poll by source. A source that does not come back has no value.",
            "s",
            target(f"mpswatch_poll_duration_seconds{{{S}}}", "{{instance}} {{source}} {{daemon}}"),
        ),
        timeseries(
            "Unknown quantities",
            "How many quantities could not be told, by reason: alerts that need them are silent.",
            "short",
            target(f"count by (instance, reason) (mpswatch_unknown{{{S}}} == 1)", "{{instance}} {{reason}}"),
            stacked=True,
            steps=True,
        ),
        timeseries(
            "Archive",
            "Size of all runs in the archive.",
            "bytes",
            target(f"mpswatch_archive_bytes{{{S}}}", "{{instance}}"),
        ),
        timeseries(
            "Memory of mpswatch",
            "Resident memory of the daemon, without its measuring client.",
            "bytes",
            target(
                f"process_resident_memory_bytes{{{S}}} and on (job, instance) mpswatch_build_info{{{S}}}",
                "{{instance}}",
            ),
            width=6,
        ),
        timeseries(
            "Processor time of mpswatch",
            "Share of one processor that the daemon uses, without its measuring client.",
            "percentunit",
            target(
                f"rate(process_cpu_seconds_total{{{S}}}[$__rate_interval])"
                f" and on (job, instance) mpswatch_build_info{{{S}}}",
                "{{instance}}",
            ),
            width=6,
        ),
    ]
    return dashboard(
        "mpswatch-host",
        "mpswatch: host",
        "One host's GPUs under MPS: caps measured, managed clients, foreign tenants, the server, the watcher.",
        variables=[JOB, INSTANCE],
        panels=panels,
    )
