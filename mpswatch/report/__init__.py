"""The report over a period: one HTML file with everything in it, for an incident or a capacity plan.

`gather(archive, journal, since, until)` reads; `write(period)` gives the HTML; `pictures(period)` the SVGs alone.
"""

from mpswatch.report.gathering import Period, SeriesReport, gather
from mpswatch.report.writing import pictures, write

__all__ = ["Period", "SeriesReport", "gather", "pictures", "write"]
