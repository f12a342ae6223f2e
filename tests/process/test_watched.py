"""A source that hangs is given up on, not asked again until it came back, and takes nothing else down."""

from __future__ import annotations

import threading
import time

import pytest

from mpswatch.documents import Reason
from mpswatch.process.watched import SourceStuck, Watched


def test_the_value_comes_back() -> None:
    assert Watched("nvml").call(lambda: 41 + 1, deadline=5) == 42


def test_what_the_source_raises_is_raised_to_the_asker() -> None:
    def fails() -> int:
        raise ZeroDivisionError("as it was")

    with pytest.raises(ZeroDivisionError, match="as it was"):
        Watched("nvml").call(fails, deadline=5)


def test_a_hung_source_is_stuck_until_it_comes_back() -> None:
    source, release, asked = Watched("nvml"), threading.Event(), []
    with pytest.raises(SourceStuck) as raised:
        source.call(release.wait, deadline=0.05)
    assert raised.value.reason is Reason.SOURCE_STUCK
    began = time.monotonic()
    with pytest.raises(SourceStuck, match="earlier question"):
        source.call(lambda: asked.append(1), deadline=5)
    assert time.monotonic() - began < 1, "it must not wait for a source that is known to hang"
    assert asked == []
    release.set()
    for _ in range(200):
        try:
            assert source.call(lambda: "back", deadline=5) == "back"
        except SourceStuck:
            time.sleep(0.01)
        else:
            return
    pytest.fail("it stayed stuck after the source came back")


def test_one_hung_source_does_not_hold_another() -> None:
    release = threading.Event()
    with pytest.raises(SourceStuck):
        Watched("nvml").call(release.wait, deadline=0.05)
    assert Watched("mps").call(lambda: 1, deadline=5) == 1
    release.set()
