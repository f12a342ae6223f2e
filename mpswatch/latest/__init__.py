"""The latest view: the newest documents, their age, health beside data.

For the daemon: `Latest(host=…, simulated=…, daemons={name: pipe_directory}, poll_interval=…, sweep_interval=…)`,
`record(fact)`, `restore(archive.latest(), now=…)`, `expect([(daemon, gpu_uuid, plan)])`, `set_paused`, `set_stuck`,
`set_fault_log`, `remember(events)`, `configure(…)` at a reload, `next_expiry()` and `expire()` for its timer, `view()`.
One attempt to sweep gives exactly one of: a SweepDocument, an Event `sweep_refused`, an Event `sweep_failed`.
"""

from mpswatch.latest.state import Latest, WrongStackError, finished_at, outcome
from mpswatch.latest.view import OUTCOMES, ArchiveHealth, Outcome, Run, SourceHealth, SweepHealth, Target, View

__all__ = [
    "OUTCOMES",
    "ArchiveHealth",
    "Latest",
    "Outcome",
    "Run",
    "SourceHealth",
    "SweepHealth",
    "Target",
    "View",
    "WrongStackError",
    "finished_at",
    "outcome",
]
