"""Documents become metric families: names, help and labels in one table, values from one immutable view.

For the daemon: `Exposition(latest, Options(tenant_names=20, pid_labels=False), on_fault=…)`, which web renders from.
`families(view, options)` is pure and cannot raise.
"""

from mpswatch.metrics.builders import build, families
from mpswatch.metrics.exposition import Exposition
from mpswatch.metrics.sheet import Family, Options
from mpswatch.metrics.table import TABLE, Spec
from mpswatch.metrics.text import CONTENT_TYPES, Format

__all__ = ["CONTENT_TYPES", "TABLE", "Exposition", "Family", "Format", "Options", "Spec", "build", "families"]
