"""The sweep: a short capped matmul client for each cap, as a real client of the stack's own control daemon.

`run_sweep(...)` gives a `SweepDocument` or a `Refusal`. Whoever calls it gives the `Ports` to the outside, a `Stop`
to end it by, and records what comes back.
"""

from mpswatch.sweep.permit import Limits, Refusal
from mpswatch.sweep.plan import DEFAULT_CAPS, Plan, PlanError, Thorough, canonical_cap, canonical_caps
from mpswatch.sweep.ports import Address, Ports
from mpswatch.sweep.progress import Progress
from mpswatch.sweep.run import run_sweep
from mpswatch.sweep.runtime import ClientProgramError, ProcessRuntime, Runtime, refused_variables
from mpswatch.sweep.stop import Stop

__all__ = [
    "DEFAULT_CAPS",
    "Address",
    "ClientProgramError",
    "Limits",
    "Plan",
    "PlanError",
    "Ports",
    "ProcessRuntime",
    "Progress",
    "Refusal",
    "Runtime",
    "Stop",
    "Thorough",
    "canonical_cap",
    "canonical_caps",
    "refused_variables",
    "run_sweep",
]
