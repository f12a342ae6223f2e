"""What this process costs, beside prometheus_client's own collectors of the same."""

from __future__ import annotations

import pytest
from prometheus_client import GC_COLLECTOR, PROCESS_COLLECTOR, CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from mpswatch.metrics import ourselves


@pytest.fixture
def theirs() -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(PROCESS_COLLECTOR)
    registry.register(GC_COLLECTOR)
    return registry


@pytest.mark.parametrize(("format_", "generate"), [("text", generate_latest), ("openmetrics", generate_openmetrics)])
def test_the_same_series_as_every_python_process_has_them(theirs, format_, generate):
    said = generate(theirs).decode().removesuffix("# EOF\n").splitlines()
    ours = ourselves.render(ourselves.collect(), format_).decode().splitlines()
    assert [line.rpartition(" ")[0] for line in ours] == [line.rpartition(" ")[0] for line in said]
    for our_line, their_line in zip(ours, said, strict=True):
        if our_line.startswith("#"):
            assert our_line == their_line
        else:
            value = float(their_line.rpartition(" ")[2])
            assert float(our_line.rpartition(" ")[2]) == pytest.approx(value, rel=0.05, abs=2), our_line
