"""Who a tenant is, on the page and in the API: places for everybody, people and command lines behind a password."""

from __future__ import annotations

import bcrypt
import httpx
import pytest

from mpswatch.documents import ExpectationLook, TenantIdentity, Waiting, WaitingClient

HIDDEN = ("erin-the-user", "serve --fast", "user-1000.slice")


@pytest.fixture
def watched(latest, facts):
    identity = TenantIdentity(
        user="erin-the-user", command_line="serve --fast", slice="user-1000.slice", unit="embedder.service",
        pod_name="embedder-0", pod_uid="6d3f2c1e", pod_namespace="search", container_name="server",
        container_id="a" * 64,
    )  # fmt: skip
    tenants = (
        facts.tenant(7, "foreign", identity=identity, expectations=("embedder",)),
        facts.tenant(8, "foreign", welcome="desktop", process_name="Xorg"),
        facts.tenant(9, "managed"),
    )
    daemon = facts.daemon(waiting=Waiting(clients=(WaitingClient(pid=5, uid=77001),), shutdown_armed=True))
    looks = (ExpectationLook(name="embedder", minimum=2, matched=1, escaped=1),)
    latest.record(facts.poll(daemons=(daemon,), tenants=facts.known(tenants), expectations=looks))


def test_the_page_says_who_has_escaped_who_is_welcome_and_who_waits(serving, watched):
    text = httpx.get(serving().url).text
    for words in (
        "escaped: expected under MPS as embedder", "welcome as desktop", "search/embedder-0, server, embedder.service",
        "0 managed of at least 2, 1 escaped", "a client of another user waits",
    ):  # fmt: skip
        assert words in text
    assert not [word for word in HIDDEN if word in text]


def test_the_api_keeps_people_and_command_lines_behind_the_password(serving, watched, tmp_path):
    text = httpx.get(f"{serving().url}/api/v1/latest").text
    assert "embedder-0" in text
    assert not [word for word in (*HIDDEN, "77001") if word in text]
    file = tmp_path / "web.yml"
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    file.write_text(f"basic_auth_users:\n  ann: {hashed}\n")
    url = serving(path=file).url
    for path in ("/", "/api/v1/latest"):
        behind = httpx.get(f"{url}{path}", auth=("ann", "secret")).text
        assert "erin-the-user" in behind
        assert "serve --fast" in behind
