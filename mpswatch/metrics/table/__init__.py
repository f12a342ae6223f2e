"""Every metric that mpswatch publishes: name, type, labels, meaning, when it is absent, and a query that uses it.

docs/metrics.md is checked against this table, and so are the rules and dashboards: a name is written here once.
"""

from mpswatch.metrics.table.caps import CAPS, HISTORY
from mpswatch.metrics.table.ourselves import ABOUT_US, ARCHIVE, SOURCES, UNKNOWN
from mpswatch.metrics.table.spec import Spec
from mpswatch.metrics.table.stack import GPUS, MPS
from mpswatch.metrics.table.sweeps import INTERFERENCE, SWEEPS
from mpswatch.metrics.table.tenants import TENANTS

TABLE: tuple[Spec, ...] = (
    *ABOUT_US,
    *ARCHIVE,
    *SOURCES,
    *GPUS,
    *MPS,
    *TENANTS,
    *CAPS,
    *HISTORY,
    *SWEEPS,
    *INTERFERENCE,
    *UNKNOWN,
)
BY_NAME = {spec.name: spec for spec in TABLE}

__all__ = [
    "ABOUT_US",
    "ARCHIVE",
    "BY_NAME",
    "CAPS",
    "GPUS",
    "HISTORY",
    "INTERFERENCE",
    "MPS",
    "SOURCES",
    "SWEEPS",
    "TABLE",
    "TENANTS",
    "UNKNOWN",
    "Spec",
]
