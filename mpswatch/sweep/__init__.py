"""The sweep: a short capped matmul client for each cap, as a real client of the stack's own control daemon.

`run.run_sweep(...)` gives a `SweepDocument` or a `Refusal`. Whoever calls it gives the `Ports` to the outside, a `Stop`
to end it by, and records what comes back. Nothing is imported here: the configuration needs the plan alone, and every
command would pay for the rest.
"""
