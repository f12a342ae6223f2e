"""The report over a period: one HTML file with everything in it, for an incident or a capacity plan.

`gather(archive, journal, since, until)` reads; `write(period)` gives the HTML; `pictures(period)` the SVGs alone.
"""

from mpswatch.report.gathering import InterferenceReport, Period, SeriesReport, gather
from mpswatch.report.pictures import pictures
from mpswatch.report.writing import write

__all__ = ["InterferenceReport", "Period", "SeriesReport", "gather", "pictures", "write"]
