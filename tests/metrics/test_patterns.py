"""Expected, escaped and welcome in metrics, sums by group, who waits: true or absent, with a reason."""

from __future__ import annotations

import pytest

from mpswatch.documents import ExpectationLook, Reason, TenantIdentity, Waiting, WaitingClient
from mpswatch.metrics import families
from mpswatch.metrics.sheet import Options

MIB = 1 << 20


@pytest.fixture
def published(latest, facts):
    """The samples of one metric after a poll."""

    def published(name, *, options=None, **poll):
        latest.record(facts.poll(**poll))
        found = families(latest.view(), options or Options())
        return next(family.samples for family in found if family.spec.name == f"mpswatch_{name}")

    return published


EXPECTED = (
    ExpectationLook(name="embedder", minimum=2, matched=3, managed=2, escaped=1),
    ExpectationLook(name="monitoring", minimum=None, matched=0),
    ExpectationLook(name="desktop", minimum=None, matched=0),
)


def test_expected_managed_and_escaped_are_counted_by_expectation(published):
    assert published("expected_clients", expectations=EXPECTED) == {("embedder",): 2}
    assert published("expected_clients_managed", expectations=EXPECTED) == {("embedder",): 2}
    assert published("escaped_clients", expectations=EXPECTED) == {("embedder",): 1}


def test_a_pattern_that_matches_nobody_is_0_and_the_default_list_is_no_news(published):
    assert published("pattern_matches", expectations=EXPECTED) == {("embedder",): 3, ("monitoring",): 0}


def test_while_not_all_is_known_counts_are_absent_with_the_reason_and_what_is_expected_stays(published):
    looks = (ExpectationLook(name="embedder", minimum=2, matched=1, unknown_reason=Reason.DAEMON_SILENT),)
    assert published("expected_clients", expectations=looks) == {("embedder",): 2}
    assert published("expected_clients_managed", expectations=looks) == {}
    unknown = published("unknown", expectations=looks)
    assert ("", "", "escaped_clients", "daemon_silent") in unknown


def test_an_escape_that_is_seen_is_published_whatever_else_is_not_known(published):
    looks = (
        ExpectationLook(name="embedder", minimum=1, matched=1, escaped=1, unknown_reason=Reason.PERMISSION),
        ExpectationLook(name="ranker", minimum=1, matched=0, unknown_reason=Reason.PERMISSION),
    )
    assert published("escaped_clients", expectations=looks) == {("embedder",): 1}
    assert published("expected_clients_managed", expectations=looks) == {}


def test_welcome_tenants_are_counted_apart(published, facts):
    tenants = facts.known(
        (facts.tenant(1, "foreign", 100 * MIB), facts.tenant(2, "foreign", 50 * MIB, welcome="desktop"))
    )
    assert published("foreign_tenants", tenants=tenants) == {(facts.GPU,): 1}
    assert published("foreign_memory_bytes", tenants=tenants) == {(facts.GPU,): 100 * MIB}
    assert published("welcome_tenants", tenants=tenants) == {(facts.GPU,): 1}
    assert published("welcome_memory_bytes", tenants=tenants) == {(facts.GPU,): 50 * MIB}


def test_sums_by_group_are_bounded_and_what_is_left_goes_to_other(published, facts):
    units = {pid: TenantIdentity(unit=f"u{pid}.service") for pid in range(1, 6)}
    rows = [facts.tenant(pid, "foreign", pid * MIB, identity=who) for pid, who in units.items()]
    tenants = facts.known((*rows, facts.tenant(9, "foreign", 0)))
    options = Options(tenant_names=2, tenant_groups=("unit",))
    sums = published("tenant_group_memory_bytes", options=options, tenants=tenants)
    place = (facts.GPU, "foreign", "unit")
    assert sums == {(*place, "u5.service"): 5 * MIB, (*place, "u4.service"): 4 * MIB, (*place, "other"): 6 * MIB}
    counts = published("tenant_group_processes", options=options, tenants=tenants)
    assert counts[(*place, "other")] == 4
    assert published("tenant_group_processes", tenants=tenants) == {}


def test_who_waits_and_what_is_armed(published, facts):
    waiting = Waiting(clients=(WaitingClient(pid=7, uid=1001),), shutdown_armed=True)
    daemons = (facts.daemon(waiting=waiting),)
    assert published("mps_waiting_clients", daemons=daemons) == {(facts.DAEMON,): 1}
    assert published("mps_server_shutdown_armed", daemons=daemons) == {(facts.DAEMON,): 1}
    unread = (facts.daemon(waiting=None, unknown={"waiting": Reason.PERMISSION}),)
    assert published("mps_waiting_clients", daemons=unread) == {}
    assert (facts.DAEMON, "", "mps_waiting_clients", "permission") in published("unknown", daemons=unread)
