"""History: reads the archive through an index beside it, judges a run by its own series, compares two runs.

For the daemon: `look_back(archive, document, now=…)` gives the `HistoryLook` to record. For the command line and the
report: `read_with_index(archive, read)`, then `index.series(…)` and `index.runs(series, …)`; `judge`, `compare`.
"""

from mpswatch.history.comparing import CapChange, Comparison, Difference, compare
from mpswatch.history.facts import CapFacts, RunFacts, Series, facts_of, interval_of, series_of
from mpswatch.history.index import Index, Unreadable, open_index, read_with_index
from mpswatch.history.judging import Band, band_of, judge
from mpswatch.history.looking import look_back

__all__ = [
    "Band",
    "CapChange",
    "CapFacts",
    "Comparison",
    "Difference",
    "Index",
    "RunFacts",
    "Series",
    "Unreadable",
    "band_of",
    "compare",
    "facts_of",
    "interval_of",
    "judge",
    "look_back",
    "open_index",
    "read_with_index",
    "series_of",
]
