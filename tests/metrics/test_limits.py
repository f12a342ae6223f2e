"""Percentages and memory limits as series: the lowest where there are two servers, and no series where none is set."""

from __future__ import annotations

import pytest

from mpswatch.documents import Reason
from mpswatch.metrics import families

RATIO, MEMORY = "mpswatch_mps_server_active_thread_ratio", "mpswatch_mps_server_pinned_memory_limit_bytes"
DEFAULT = "mpswatch_mps_default_pinned_memory_limit_bytes"


@pytest.fixture
def published(latest, facts):
    """Every series after a poll with these servers, and the reason for what is unknown, by quantity."""

    def publish(*servers, **daemon):
        latest.expect([(facts.DAEMON, facts.GPU, "quick")])
        latest.record(facts.poll(daemons=(facts.daemon(servers=facts.known(servers), **daemon),)))
        found = {family.spec.name: dict(family.samples) for family in families(latest.view())}
        return found, {labels[2]: labels[3] for labels in found["mpswatch_unknown"]}

    return publish


def test_what_a_server_gives_its_clients_is_published(published, facts):
    server = facts.server(active_thread_percentage=40.0, memory_limits={facts.GPU: 2 << 30, "GPU-b": None})
    found, unknown = published(server, default_memory_limits={facts.GPU: None, "GPU-b": 3 << 30})
    assert found[RATIO] == {(facts.DAEMON,): 0.4}
    assert found[MEMORY] == {(facts.DAEMON, facts.GPU): 2 << 30}, "none is set for the other"
    assert found[DEFAULT] == {(facts.DAEMON, "GPU-b"): 3 << 30}
    assert not {"mps_server_active_thread_ratio", "mps_server_pinned_memory_limit_bytes"} & unknown.keys()


def test_of_two_servers_the_lower_limit_is_published(published, facts):
    one = facts.server(active_thread_percentage=40.0, memory_limits={facts.GPU: 2 << 30})
    two = facts.server(pid=101, clients=(), active_thread_percentage=30.0, memory_limits={facts.GPU: 4 << 30})
    found, _ = published(one, two)
    assert found[RATIO] == {(facts.DAEMON,): 0.3}
    assert found[MEMORY] == {(facts.DAEMON, facts.GPU): 2 << 30}


def test_what_was_not_told_is_unknown_and_without_a_server_there_is_none(published, facts):
    reasons = dict.fromkeys(("active_thread_percentage", "memory_limits"), Reason.NOT_SUPPORTED)
    silent = facts.server(active_thread_percentage=None, memory_limits=None, unknown=reasons)
    found, unknown = published(
        silent, default_memory_limits={}, unknown={"default_memory_limits": Reason.IDENTITY_AMBIGUOUS}
    )
    assert (found[RATIO], found[MEMORY], found[DEFAULT]) == ({}, {}, {})
    assert (
        unknown["mps_server_active_thread_ratio"] == unknown["mps_server_pinned_memory_limit_bytes"] == "not_supported"
    )
    assert unknown["mps_default_pinned_memory_limit_bytes"] == "identity_ambiguous"
    found, unknown = published()
    assert (found[RATIO], found[MEMORY]) == ({}, {})
    assert unknown["mps_server_active_thread_ratio"] == unknown["mps_server_pinned_memory_limit_bytes"] == "no_server"
