"""History: reads the archive through an index beside it, judges a run by its own series, compares two runs.

For the daemon: `look_back(archive, document, now=…)` gives the `HistoryLook` to record. For the command line and the
report: `read_with_index(archive, read)`, then `index.series(…)` and `index.runs(series, …)`; `judge`, `compare`.
"""

from mpswatch.history.comparing import CapChange, Comparison, Difference, compare
from mpswatch.history.facts import Amount, CapFacts, RunFacts, Series, amounts_of, facts_of, series_of
from mpswatch.history.index import open_index, read_with_index
from mpswatch.history.judging import LOOK_BACK, Band, band_of, judge, judge_all, judge_each
from mpswatch.history.looking import look_back
from mpswatch.history.queries import Index, Unreadable
from mpswatch.history.turns import BEGAN, ENDED, Subject, lasting, turns

__all__ = [
    "BEGAN",
    "ENDED",
    "LOOK_BACK",
    "Amount",
    "Band",
    "CapChange",
    "CapFacts",
    "Comparison",
    "Difference",
    "Index",
    "RunFacts",
    "Series",
    "Subject",
    "Unreadable",
    "amounts_of",
    "band_of",
    "compare",
    "facts_of",
    "judge",
    "judge_all",
    "judge_each",
    "lasting",
    "look_back",
    "open_index",
    "read_with_index",
    "series_of",
    "turns",
]
