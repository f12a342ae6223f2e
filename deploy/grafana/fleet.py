"""A fleet: read from the recording rules, which leave rehearsals out; the rest says so itself."""

from __future__ import annotations

from panels import CLUSTER, INSTANCE, JOB, Json, bars, dashboard, row, stat, table, target, timeseries

F = 'cluster=~"$cluster", job=~"$job", instance=~"$instance"'
REAL = f"unless on (job, instance) mpswatch_simulated{{{F}}} == 1"


def fleet() -> Json:
    to_host = {
        "title": "Open this host",
        "url": "/d/mpswatch-host?var-datasource=${datasource}&var-instance=${__value.raw}",
        "targetBlank": False,
    }
    panels = [
        row("Now"),
        stat(
            "Hosts",
            "Hosts whose tenants are known now. Rehearsals are not counted, here and below.",
            "short",
            f"count(instance:mpswatch_foreign_tenants:sum{{{F}}})",
            "hosts",
        ),
        stat(
            "Hosts with foreign tenants",
            "Hosts where at least one process uses a GPU outside MPS.",
            "short",
            f"sum(instance:mpswatch_foreign_tenants:sum{{{F}}} > bool 0)",
            "hosts",
            bad_from=1,
        ),
        stat(
            "Foreign memory",
            "GPU memory that foreign tenants hold, on all hosts together.",
            "bytes",
            f"sum(instance:mpswatch_foreign_memory_bytes:sum{{{F}}})",
            "bytes",
        ),
        stat(
            "Worst cap ratio",
            "The highest share of full throughput that any host gives at a cap of 50 or less. Near 100 %: not shaping.",
            "percentunit",
            f"max(instance:mpswatch_cap_ratio:max{{{F}}})",
            "ratio",
            bad_from=0.9,
        ),
        stat(
            "Oldest complete sweep",
            "Age of the oldest of all hosts' last complete runs.",
            "s",
            f"max(instance:mpswatch_sweep_age_seconds:max{{{F}}})",
            "age",
            bad_from=3 * 3600,
        ),
        stat(
            "Firing alerts",
            "Alerts of mpswatch that fire now on these hosts.",
            "short",
            f'count(ALERTS{{alertname=~"Mpswatch.*", alertstate="firing", {F}}}) or vector(0)',
            "alerts",
            bad_from=1,
        ),
        row("Hosts"),
        table(
            "Every host",
            "Tenants, staleness and caps of each host; click a host to open it. Against the median: the"
            " slowest of its caps over the middle of its cluster, same GPU model and cap.",
            {
                "Foreign tenants": (f"instance:mpswatch_foreign_tenants:sum{{{F}}}", "short"),
                "Foreign memory": (f"instance:mpswatch_foreign_memory_bytes:sum{{{F}}}", "bytes"),
                "Managed clients": (f"instance:mpswatch_managed_clients:sum{{{F}}}", "short"),
                "Since the last sweep": (f"instance:mpswatch_sweep_age_seconds:max{{{F}}}", "s"),
                "Worst cap ratio": (f"instance:mpswatch_cap_ratio:max{{{F}}}", "percentunit"),
                "Against the median": (f"instance:mpswatch_cap_tflops_to_cluster_median:min{{{F}}}", "percentunit"),
            },
            ["instance", "cluster"],
            width=24,
            height=10,
            link=to_host,
        ),
        row("Tenants"),
        timeseries(
            "Hosts with foreign tenants over time",
            "By cluster, over time.",
            "short",
            target(f"sum by (cluster) (instance:mpswatch_foreign_tenants:sum{{{F}}} > bool 0)", "{{cluster}}"),
            stacked=True,
        ),
        timeseries(
            "Foreign memory over time",
            "By cluster, over time.",
            "bytes",
            target(f"sum by (cluster) (instance:mpswatch_foreign_memory_bytes:sum{{{F}}})", "{{cluster}}"),
            stacked=True,
        ),
        timeseries(
            "Hosts with the most foreign memory",
            "The ten hosts that lose most of their GPU memory to foreign tenants.",
            "bytes",
            target(f"topk(10, instance:mpswatch_foreign_memory_bytes:sum{{{F}}})", "{{instance}}"),
        ),
        timeseries(
            "Managed clients",
            "By cluster, over time.",
            "short",
            target(f"sum by (cluster) (instance:mpswatch_managed_clients:sum{{{F}}})", "{{cluster}}"),
            stacked=True,
        ),
        row("Caps"),
        bars(
            "Slowest host by cap",
            "For each GPU model and cap: the host with the lowest burst throughput, in plan quick.",
            "tflops",
            f'bottomk by (name, cap) (1, instance_cap:mpswatch_cap_tflops:by_model{{plan="quick", {F}}})',
            "{{cap}} % {{name}} {{instance}}",
        ),
        timeseries(
            "Median burst throughput by cap",
            "The middle of all hosts with the same GPU model, in plan quick.",
            "tflops",
            target(
                'quantile by (cluster, name, cap) (0.5, instance_cap:mpswatch_cap_tflops:by_model{plan="quick", '
                + F
                + "})",
                "{{cluster}} {{name}} {{cap}} %",
            ),
            steps=True,
        ),
        timeseries(
            "Slowest against the median",
            "The ten hosts whose slowest cap is furthest below the middle of their cluster.",
            "percentunit",
            target(f"bottomk(10, instance:mpswatch_cap_tflops_to_cluster_median:min{{{F}}})", "{{instance}}"),
            steps=True,
        ),
        timeseries(
            "Worst cap ratios",
            "The ten hosts whose low caps come closest to full throughput. Near 100 %: caps do not shape there.",
            "percentunit",
            target(f"topk(10, instance:mpswatch_cap_ratio:max{{{F}}})", "{{instance}}"),
            steps=True,
            maximum=1.05,
        ),
        row("Sweeps and watchers"),
        timeseries(
            "Oldest runs",
            "The ten hosts with the oldest last complete run.",
            "s",
            target(f"topk(10, instance:mpswatch_sweep_age_seconds:max{{{F}}})", "{{instance}}"),
        ),
        timeseries(
            "Sweep outcomes",
            "Attempts within each step, all hosts together: complete, partial, failed, refused.",
            "short",
            target(
                f"sum by (outcome) (increase(mpswatch_sweeps_total{{{F}}}[$__rate_interval]) {REAL})",
                "{{outcome}}",
            ),
            stacked=True,
        ),
        timeseries(
            "Unknown quantities",
            "What hosts could not tell, by reason: alerts that need it are silent there.",
            "short",
            target(f"count by (reason) (mpswatch_unknown{{{F}}} == 1 {REAL})", "{{reason}}"),
            stacked=True,
            steps=True,
        ),
        table(
            "Versions",
            "How many hosts run which version of mpswatch.",
            {"Hosts": (f"count by (version) (mpswatch_build_info{{{F}}} {REAL})", "short")},
            ["version"],
        ),
    ]
    return dashboard(
        "mpswatch-fleet",
        "mpswatch: fleet",
        "Every host with mpswatch: who is foreign, how stale, how well caps shape.",
        variables=[JOB, CLUSTER, INSTANCE],
        panels=panels,
    )
