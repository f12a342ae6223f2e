"""Each cap: its throughput in the newest run, and beside its own history."""

from __future__ import annotations

from mpswatch.metrics.table.spec import gauge

CAPS = (
    gauge(
        "cap_tflops",
        "daemon uuid plan cap",
        "Burst throughput (after a rest) of a managed client under this cap (active thread percentage), newest run.",
        "no run, the newest is older than three intervals, or the cell failed (mpswatch_cap_unknown)",
        'mpswatch_cap_tflops{plan="quick"}',
    ),
    gauge(
        "cap_sm_count",
        "daemon uuid plan cap",
        "Streaming multiprocessors that the client saw under this cap.",
        "no run, the newest is older than three intervals, or the client never attached",
    ),
    gauge(
        "cap_sm_count_expected",
        "daemon uuid plan cap",
        "The most streaming multiprocessors that this cap allows on this GPU.",
        "no run, the newest is older than three intervals, or the GPU's total is unknown",
        "mpswatch_cap_sm_count / mpswatch_cap_sm_count_expected",
    ),
    gauge(
        "cap_sm_count_as_expected",
        "daemon uuid plan cap",
        "1 if the number of multiprocessors is what the cap implies, else 0: then the cap did not take hold.",
        "no run, the newest is older than three intervals, or one of the two counts is unknown",
        "max_over_time(mpswatch_cap_sm_count_as_expected[3h]) == 0",
    ),
    gauge(
        "cap_self_managed",
        "daemon uuid plan cap",
        "1 if the measuring client was seen in the daemon's own list, else 0: then it ran outside MPS.",
        "no run, the newest is older than three intervals, or the list could not be had",
        "max_over_time(mpswatch_cap_self_managed[3h]) == 0",
    ),
    gauge(
        "cap_verdict",
        "daemon uuid plan cap verdict",
        "1 for the verdict on this cap (enforced, not_enforced, unknown), 0 for the others; see docs/method.md.",
        "no run, the newest is older than three intervals, or it was recorded without verdicts",
        'max_over_time(mpswatch_cap_verdict{verdict="not_enforced"}[3h]) == 1',
    ),
    gauge(
        "cap_tflops_interval_low",
        "daemon uuid plan cap",
        "Lower end of the 95 % interval of mpswatch_cap_tflops, a burst figure.",
        "no run, the newest is older than three intervals, or its plan takes no samples (quick)",
        "mpswatch_cap_tflops_interval_high - mpswatch_cap_tflops_interval_low",
    ),
    gauge(
        "cap_tflops_interval_high",
        "daemon uuid plan cap",
        "Upper end of the 95 % interval of mpswatch_cap_tflops, a burst figure.",
        "no run, the newest is older than three intervals, or its plan takes no samples (quick)",
    ),
    gauge(
        "cap_sustained_tflops",
        "daemon uuid plan cap",
        "Sustained throughput: under load, once clocks and times settled. Never to be compared with the burst one.",
        "no run, the newest is older than three intervals, or its plan does not measure it (quick)",
    ),
    gauge(
        "cap_sustained_tflops_interval_low",
        "daemon uuid plan cap",
        "Lower end of the 95 % interval of mpswatch_cap_sustained_tflops.",
        "no run, the newest is older than three intervals, or its plan does not measure it (quick)",
    ),
    gauge(
        "cap_sustained_tflops_interval_high",
        "daemon uuid plan cap",
        "Upper end of the 95 % interval of mpswatch_cap_sustained_tflops.",
        "no run, the newest is older than three intervals, or its plan does not measure it (quick)",
    ),
    gauge(
        "cap_sm_clock_hertz",
        "daemon uuid plan cap quantity",
        "SM clock while this quantity (burst, sustained) was measured; in plan quick of the look after it.",
        "no run, the newest is older than three intervals, or nobody looked while it was measured",
        'mpswatch_cap_sm_clock_hertz{quantity="sustained"} / 1e9',
    ),
    gauge(
        "cap_power_watts",
        "daemon uuid plan cap quantity",
        "Power of the GPU while this quantity (burst, sustained) was measured; in plan quick of the look after it.",
        "no run, the newest is older than three intervals, or nobody looked while it was measured",
    ),
    gauge(
        "cap_unknown",
        "daemon uuid plan cap reason",
        "1 for a cap without a throughput, with the reason; cap is empty before the first run.",
        "the throughput is known",
        "count by (reason) (mpswatch_cap_unknown)",
    ),
)

HISTORY = (
    gauge(
        "cap_history_standing",
        "daemon uuid plan cap quantity standing",
        "1 for how the newest run stands against its own history: usual, slower_once, below, above or explained.",
        "no run, the newest is older than three intervals, or its history is too short or could not be read",
        'max_over_time(mpswatch_cap_history_standing{standing="below"}[10m]) == 1',
    ),
    gauge(
        "cap_history_median_tflops",
        "daemon uuid plan cap quantity",
        "Median of the earlier runs that the newest is held against: tflops is its one pass, a burst as burst is.",
        "no run, the newest is older than three intervals, or its history is too short or could not be read",
        'mpswatch_cap_tflops / ignoring (quantity) mpswatch_cap_history_median_tflops{quantity="tflops"}',
    ),
    gauge(
        "cap_history_low_tflops",
        "daemon uuid plan cap quantity",
        "The least throughput that the history of this cap calls usual.",
        "no run, the newest is older than three intervals, or its history is too short or could not be read",
    ),
    gauge(
        "cap_history_runs",
        "daemon uuid plan cap quantity",
        "Earlier runs that the newest one is held against, at most 40.",
        "no run, the newest is older than three intervals, or its history could not be read",
    ),
)
