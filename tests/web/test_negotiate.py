"""What a scraper takes."""

from __future__ import annotations

import pytest

from mpswatch.web.negotiate import format_of, takes_gzip


@pytest.mark.parametrize(
    ("accept", "format_"),
    [
        ("", "text"),
        ("*/*", "text"),
        ("text/html,*/*;q=0.8", "text"),
        ("application/openmetrics-text", "openmetrics"),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", "openmetrics"),
        ("application/openmetrics-text;version=0.0.1,text/plain;version=0.0.4;q=0.5", "openmetrics"),
        ("application/openmetrics-text;version=2.0.0", "text"),
        ("application/openmetrics-text;q=0.1,text/plain;q=0.9", "text"),
        ("application/openmetrics-text;q=0", "text"),
        ("application/openmetrics-text;q=nonsense", "text"),
        ("application/openmetrics-text;q=nan", "text"),
        (",;,=;=,", "text"),
    ],
)
def test_openmetrics_is_chosen_where_it_is_wanted_at_least_as_much(accept, format_):
    assert format_of(accept) == format_


@pytest.mark.parametrize(
    ("header", "taken"),
    [
        ("", False),
        ("gzip", True),
        ("deflate, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("identity", False),
        ("*", True),
        ("*;q=0", False),
        ("gzip;q=0, *", False),
    ],
)
def test_gzip_is_taken_where_it_is_named(header, taken):
    assert takes_gzip(header) is taken
