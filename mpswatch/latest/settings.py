"""What a view is kept for: the configured daemons, and how long what was seen of them counts as true."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mpswatch.documents import InterferenceDocument
from mpswatch.latest.view import INTERFERENCE, Measurement, Target

INTERVALS = 3
"""So many intervals long a poll or a run is shown: two may fail, or be late."""
UNSCHEDULED = 3600.0
"""The interval (seconds) that a run's age is judged by where scheduled sweeps are off."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """`daemons` maps each configured name to its pipe directory; intervals are seconds.

    `sweep_interval` is None where scheduled sweeps are off. `plan_intervals` are those of plans on a schedule of their
    own (thorough, interference). `context_limit` is what a server holds where nobody tells.
    """

    daemons: Mapping[str, str]
    poll_interval: float
    sweep_interval: float | None
    plan_intervals: Mapping[str, float] = field(default_factory=dict)
    context_limit: int | None = None

    @property
    def poll_stale_after(self) -> float:
        """Seconds that a poll is shown."""
        return INTERVALS * self.poll_interval

    def stale_after(self, plan: str) -> float:
        """Seconds that a run of `plan` is shown."""
        return INTERVALS * self.plan_intervals.get(plan, self.sweep_interval or UNSCHEDULED)

    def target_of(self, document: Measurement) -> Target | None:
        """Name what was measured; None if no configured daemon has its pipe directory, or else its name."""
        by_directory = {directory: name for name, directory in self.daemons.items()}
        name = by_directory.get(document.pipe_directory)
        if name is None and document.mps is not None and document.mps.daemon in self.daemons:
            name = document.mps.daemon
        if name is None:
            return None
        plan = INTERFERENCE if isinstance(document, InterferenceDocument) else document.protocol.plan
        return Target(name, document.gpu.uuid if document.gpu is not None else "", plan)
