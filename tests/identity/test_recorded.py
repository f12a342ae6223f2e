"""Documents that an H200 gave (tests/recordings/h200-580/identity): read back, and what they must say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mpswatch.documents import PollSnapshot, from_json

RECORDED = Path(__file__).parents[1] / "recordings/h200-580/identity"


@pytest.fixture
def polls():
    def read(name):
        content = json.loads((RECORDED / name).read_bytes())
        found = [
            from_json(json.dumps(one).encode(), PollSnapshot)
            for one in ([content] if isinstance(content, dict) else content)
        ]
        assert not any(snapshot.simulated for snapshot in found)
        return found

    return read


def test_two_daemons_side_by_side_with_an_escaped_service_and_a_client_in_a_namespace(polls):
    (snapshot,) = polls("poll-two-daemons.json")
    kinds = [(tenant.kind, tenant.daemon) for tenant in snapshot.tenants.value]
    assert {(kind, daemon): kinds.count((kind, daemon)) for kind, daemon in kinds} == {
        ("managed", "one"): 3, ("managed", "two"): 1, ("server", "one"): 1, ("server", "two"): 1, ("foreign", None): 3,
    }  # fmt: skip
    assert snapshot.disagreements == ()
    looks = {look.name: look for look in snapshot.expectations}
    assert (looks["embedder"].managed, looks["embedder"].escaped, looks["monitoring"].matched) == (2, 1, 1)
    lines = [tenant.identity.command_line for tenant in snapshot.tenants.value]
    assert any("--api-key ***" in line for line in lines)
    assert not any("hunter2" in line for line in lines)


def test_three_users_on_a_multi_user_server(polls):
    (snapshot,) = polls("poll-multi-user.json")
    managed = [tenant for tenant in snapshot.tenants.value if tenant.kind == "managed"]
    assert {(tenant.uid, tenant.identity.user) for tenant in managed} == {
        (1, "daemon"),
        (5, "games"),
        (65534, "nobody"),
    }
    assert snapshot.daemons[0].servers.value[0].multi_user is True


def test_somebody_waits_dies_and_the_daemon_falls_silent(polls):
    before, waits, dead, silent = (snapshot.daemons[0] for snapshot in polls("poll-waiting.json"))
    assert (before.waiting.clients, before.waiting.shutdown_armed) == ((), False)
    assert ([client.uid for client in waits.waiting.clients], waits.waiting.shutdown_armed) == ([65534], True)
    assert waits.servers.value[0].server_state == "ACTIVE"
    assert (dead.waiting.clients, dead.waiting.shutdown_armed) == ((), True)
    assert (silent.waiting, silent.up_reason) == (None, "daemon_silent")


def test_every_refusal_was_made_before_a_client_of_ours_came():
    refusals = {}
    for name in ("identity-run1.json", "identity-run2.json", "identity-run3.json"):
        refusals |= json.loads((RECORDED / name).read_bytes())["figures"]["sweeps"]
    wanted = {
        "server replaced a moment ago": "server_unsettled",
        "a client of another uid waits": "foreign_client_waiting",
        "the client that waited has died": "foreign_client_waiting",
        "no server": "no_server",
        "server of another uid": "uid_mismatch",
        "full server": "server_full",
    }
    for why, reason in wanted.items():
        assert (refusals[why]["ended"], refusals[why]["clients_in_log"]) == (reason, 0), why
    assert (refusals["another server between two cells"]["ended"], refusals["multi-user server"]["ended"]) == (
        "partial", "complete",
    )  # fmt: skip


def test_a_server_replaced_between_two_cells_is_the_reason_of_those_that_did_not_run():
    document = json.loads((RECORDED / "sweep-changed.json").read_bytes())
    assert [cell["unknown_reason"] for cell in document["cells"]] == [None, "server_changed", "server_changed"]
    assert document["complete_sweep"] is False
