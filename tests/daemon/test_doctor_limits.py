"""The doctor names whatever limits every client, the measuring ones included."""

from __future__ import annotations

import pytest

from mpswatch.daemon.doctor_limits import limits


@pytest.fixture
def facts(shared_code):
    return shared_code("latest/facts.py")


@pytest.fixture
def said(facts):
    def say(*servers, **daemon):
        return [
            (line.mark, line.what, line.detail) for line in limits(facts.daemon(servers=facts.known(servers), **daemon))
        ]

    return say


def test_nothing_is_said_where_nothing_is_limited(facts, said):
    assert said(facts.server(memory_limits={facts.GPU: None})) == []


def test_a_servers_percentage_is_to_be_mended_and_the_default_beside_it_is_for_later(facts, said):
    """Recording limits.txt: under a server's 40 % a client capped at 80 % sees as many SMs as one without a cap."""
    server = facts.server(active_thread_percentage=40.0, memory_limits={facts.GPU: None})
    (now, later) = said(server, default_active_thread_percentage=50.0)
    assert now[:2] == ("mend", "percentage")
    assert "server 100 gives each client 40 % at most" in now[2]
    assert later[:2] == ("note", "default percentage")
    assert "from now on" in later[2]


def test_where_the_servers_is_not_known_the_default_is_to_be_mended(facts, said):
    server = facts.server(active_thread_percentage=None, memory_limits=None)
    assert [line[:2] for line in said(server, default_active_thread_percentage=50.0)] == [
        ("mend", "default percentage")
    ]


@pytest.mark.parametrize(("limit", "words"), [(2 << 30, "2 GiB"), (900 << 20, "900 MiB")])
def test_a_memory_limit_is_named(facts, said, limit, words):
    ((mark, what, detail),) = said(facts.server(memory_limits={facts.GPU: limit}))
    assert (mark, what) == ("note", "memory limit")
    assert f"gives each client {words} of {facts.GPU}" in detail
