"""The latest view: the newest documents, their age, health beside data.

For the daemon: `Latest(Settings(daemons={name: pipe_directory}, poll_interval=…, sweep_interval=…), host=…,
simulated=…)`, `record(fact)`, `restore(archive.latest(), now=…)`, `expect([(daemon, gpu_uuid, plan)])`, `set_paused`,
`set_stuck`, `set_fault_log`, `remember(events)`, `configure(settings)` at a reload, `next_expiry()` and `expire()` for
its timer, `view()`.
"""

from mpswatch.latest.settings import Settings
from mpswatch.latest.state import Latest, WrongStackError
from mpswatch.latest.view import (
    OUTCOMES,
    ArchiveHealth,
    InterferenceHealth,
    Outcome,
    Run,
    SourceHealth,
    SweepHealth,
    Target,
    View,
    finished_at,
    outcome,
)

__all__ = [
    "OUTCOMES",
    "ArchiveHealth",
    "InterferenceHealth",
    "Latest",
    "Outcome",
    "Run",
    "Settings",
    "SourceHealth",
    "SweepHealth",
    "Target",
    "View",
    "WrongStackError",
    "finished_at",
    "outcome",
]
