"""The web configuration file: honoured or refused by name, reloaded without a restart; passwords checked only once."""

from __future__ import annotations

import os
import ssl
import time
from concurrent.futures import ThreadPoolExecutor

import bcrypt
import httpx
import pytest

from mpswatch.documents import Reason
from mpswatch.web import WebFile, WebFileError
from mpswatch.web.reading import read_settings
from mpswatch.web.tls import allowed


def hashed(password, cost=5):
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "web.yml"
        path.write_text(text)
        return path

    return write


def problems(path):
    with pytest.raises(WebFileError) as caught:
        WebFile.load(path)
    assert caught.value.reason == Reason.WEB_CONFIGURATION
    assert str(path) in caught.value.detail
    return caught.value.problems


def trusting(directory, **changes):
    context = ssl.create_default_context(cafile=directory.ca)
    for name, value in changes.items():
        setattr(context, name, value)
    return context


def until(condition, seconds=10):
    """Wait until `condition` holds; the server looks at its files every two seconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_an_empty_file_asks_for_nothing(written):
    web_file = WebFile.load(written(""))
    assert web_file.context is None
    assert not web_file.settings.private


def test_a_missing_file_is_named(tmp_path):
    assert problems(tmp_path / "none.yml") == ("cannot be read: No such file or directory",)


def test_a_pipe_is_refused_by_what_it_is_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    assert problems(tmp_path / "fifo") == ("is not a regular file",)


def test_all_faults_are_named_at_once(written):
    found = problems(
        written(
            """
tls_server_config:
  cert_file: nowhere.pem
  client_auth_type: RequireAnyClientCert
  min_version: TLS10
  curve_preferences: [X25519]
  cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]
  colour: blue
http_server_config:
  http2: true
  headers: {X-Powered-By: mpswatch}
basic_auth_users:
  ann: opensesame
rate_limit: {interval: 1s}
surprise: 1
"""
        )
    )
    for place in (
        "surprise is not a key",
        "tls_server_config.colour is not a key",
        "tls_server_config.cert_file",
        "tls_server_config.key_file is missing",
        "tls_server_config.client_auth_type is 'RequireAnyClientCert': mpswatch can honour",
        "tls_server_config.min_version is 'TLS10'",
        "tls_server_config.curve_preferences cannot be honoured",
        "TLS_RSA_WITH_RC4_128_SHA",
        "http_server_config.http2 cannot be honoured",
        "http_server_config.headers.X-Powered-By",
        "basic_auth_users.ann is not a bcrypt hash",
        "rate_limit is not supported",
    ):
        assert any(place in problem for problem in found), place
    assert len(found) == 12
    assert not any("opensesame" in problem for problem in found)


@pytest.mark.parametrize(
    "text", ["[]", "7", "a: [", "basic_auth_users: []", "tls_server_config: 5", "\xff", "? [1]\n: 2", "&a [*a]"]
)
def test_what_is_no_configuration_is_a_named_error(written, text):
    assert problems(written(text))


ALIASES = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefg", "bcdefgh", strict=True)
)
BAD = {
    "a day that no month has": ("basic_auth_users: {a: 2026-13-45}", "basic_auth_users.a (line 1): is no timestamp"),
    "a long number": (
        "basic_auth_users: {a: " + "9" * 5000 + "}",
        "basic_auth_users.a (line 1): a number of more than",
    ),
    "a long number that Python reads": ("rate_limit: 0x" + "f" * 5000, "rate_limit (line 1): a number of more than"),
    "a long number for a name": ("? 0x" + "f" * 5000 + "\n: x", "a number of more than"),
    "a tag that does not fit": ("rate_limit: !!timestamp soon", "rate_limit (line 1): is no timestamp"),
    "half a character": ('basic_auth_users: {"\\ud800": x}', "half of a pair of surrogates"),
    "a key twice": ("rate_limit: null\nrate_limit: null", "is there twice"),
    "a bomb of aliases": (ALIASES, "keys and items"),
    "a huge file": ("rate_limit: null\n" + "# filled up\n" * 30_000, "larger than 256 KiB"),
    "a deep file": ("[" * 3_000, "is nested too deeply (line 1)"),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_file_that_yaml_chokes_on_is_a_named_error_at_once(written, bad):
    text, said = BAD[bad]
    begin = time.process_time()
    found = problems(written(text))
    assert len(found) == 1
    assert said in found[0]
    assert time.process_time() - begin < 5  # a bomb would take minutes


def test_a_certificate_and_a_key_that_do_not_belong_together_are_named(web_directory):
    path = web_directory.write()
    web_directory.authority.issue_cert("other").private_key_pem.write_to_path(web_directory.path / "server.key")
    key, cert = web_directory.path / "server.key", web_directory.path / "server.pem"
    (found,) = problems(path)
    assert f"key_file {key} is not the key of the first certificate in tls_server_config.cert_file {cert}" in found


CLIENT_CA = "  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: ca.pem\n"
PEM_FILES = {"cert_file": "server.pem", "key_file": "server.key", "client_ca_file": "ca.pem"}


@pytest.mark.parametrize("name", PEM_FILES)
def test_a_pipe_for_a_certificate_is_refused_by_what_it_is_and_not_waited_for(web_directory, name):
    place = web_directory.path / PEM_FILES[name]
    place.unlink()
    os.mkfifo(place)
    assert problems(web_directory.write(CLIENT_CA)) == (f"tls_server_config.{name} {place} is not a regular file",)


BAD_PEM = {
    "empty": ("", "is empty"),
    "text": ("broken", "it is not PEM data"),
    "something else": ("-----BEGIN DH PARAMETERS-----\nMA==\n-----END DH PARAMETERS-----\n", "but DH PARAMETERS"),
}


@pytest.mark.parametrize("name", PEM_FILES)
@pytest.mark.parametrize("bad", BAD_PEM)
def test_a_file_that_holds_no_certificate_is_named_with_what_it_holds(web_directory, name, bad):
    text, said = BAD_PEM[bad]
    place = web_directory.path / PEM_FILES[name]
    place.write_text(text)
    (found,) = problems(web_directory.write(CLIENT_CA))
    assert found.startswith(f"tls_server_config.{name} {place} ")
    assert said in found


@pytest.mark.parametrize("name", PEM_FILES)
def test_a_file_that_breaks_off_or_is_damaged_is_named(web_directory, name):
    place = web_directory.path / PEM_FILES[name]
    whole = place.read_text()
    place.write_text(whole[: len(whole) // 3])
    (found,) = problems(web_directory.write(CLIENT_CA))
    assert f"tls_server_config.{name} {place} breaks off" in found
    lines = whole.splitlines()
    place.write_text("\n".join([lines[0], lines[1][::-1], *lines[2:]]) + "\n")
    (found,) = problems(web_directory.write(CLIENT_CA))
    assert f"tls_server_config.{name} {place}" in found
    assert "damaged" in found
    assert "_ssl.c" not in found


def test_certificate_and_authority_that_are_both_bad_are_both_named(web_directory):
    (web_directory.path / "server.pem").write_text("broken")
    web_directory.ca.write_text("broken")
    assert len(problems(web_directory.write(CLIENT_CA))) == 2


def test_an_encrypted_key_is_named_and_never_asks_the_terminal(web_directory):
    (web_directory.path / "server.key").write_text(
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIBvTBX\n-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    assert "server.key holds an encrypted key" in problems(web_directory.write())[0]


def test_tls_is_spoken_and_plain_http_is_not(serving, web_directory):
    web = serving(path=web_directory.write())
    assert httpx.get(f"{web.url}/metrics", verify=trusting(web_directory)).status_code == 200
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{web.port}/metrics")


def test_certificates_may_stand_in_the_file_itself(serving, web_directory):
    def inline(name, file):
        lines = (web_directory.path / file).read_text().splitlines()
        return f"  {name}: |\n" + "".join(f"    {line}\n" for line in lines)

    path = web_directory.path / "inline.yml"
    path.write_text("tls_server_config:\n" + inline("cert", "server.pem") + inline("key", "server.key"))
    web = serving(path=path)
    assert httpx.get(f"{web.url}/metrics", verify=trusting(web_directory)).status_code == 200


def test_versions_and_ciphers_are_what_the_file_says(serving, web_directory):
    twelve = trusting(web_directory, maximum_version=ssl.TLSVersion.TLSv1_2)
    web = serving(path=web_directory.write("  min_version: TLS13\n"))
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{web.url}/metrics", verify=twelve)
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    web = serving(path=web_directory.write(f"  max_version: TLS12\n  cipher_suites: [{suite}]\n"))
    assert httpx.get(f"{web.url}/metrics", verify=twelve).status_code == 200
    twelve.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{web.url}/metrics", verify=twelve)


def test_clients_are_verified_and_held_to_their_names(serving, web_directory):
    text = "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n  client_allowed_sans: [prom]\n"
    web = serving(path=web_directory.write(text))
    assert web.protection.settings.private
    answers = {}
    for name in (None, "prom", "mallory"):
        context = trusting(web_directory)
        if name is not None:
            web_directory.authority.issue_cert(name).configure_cert(context)
        try:
            answers[name] = httpx.get(f"{web.url}/metrics", verify=context).status_code
        except httpx.TransportError:
            answers[name] = "closed"
    assert answers == {None: "closed", "prom": 200, "mallory": "closed"}


def test_an_address_is_a_name_too():
    certificate = {"subjectAltName": (("DNS", "prom"), ("IP Address", "10.0.0.1"))}
    assert allowed(certificate, ("10.0.0.1",))
    assert not allowed(certificate, ("10.0.0.2",))
    assert not allowed(None, ("prom",))


def test_a_new_certificate_is_taken_without_a_restart_and_a_bad_one_is_not(serving, web_directory):
    web = serving(path=web_directory.write())

    def serial():
        with web.connect() as plain, trusting(web_directory).wrap_socket(plain, server_hostname="127.0.0.1") as tls:
            return tls.getpeercert()["serialNumber"]

    first = serial()
    with httpx.Client(verify=trusting(web_directory)) as kept:
        assert kept.get(f"{web.url}/metrics").status_code == 200
        (web_directory.path / "server.pem").write_text("broken")
        until(lambda: [line for line in web.log.lines if line[0] == "error"])
        assert serial() == first
        web_directory.issue()
        until(lambda: serial() != first)
        assert kept.get(f"{web.url}/metrics").status_code == 200  # a connection that was there goes on
    assert [event for _, event, _ in web.log.lines] == [
        "the web configuration was not reloaded",
        "the web configuration was reloaded",
    ]


def test_a_pipe_for_a_certificate_leaves_the_old_one_in_force_and_what_comes_after_is_taken(serving, web_directory):
    path = web_directory.write()
    web = serving(path=path)
    os.mkfifo(web_directory.path / "new.pem")
    path.write_text("tls_server_config:\n  cert_file: new.pem\n  key_file: server.key\n")
    until(lambda: [line for line in web.log.lines if line[0] == "error"])
    assert f"cert_file {web_directory.path / 'new.pem'} is not a regular file" in web.log.lines[-1][2]["detail"]
    assert httpx.get(f"{web.url}/metrics", verify=trusting(web_directory)).status_code == 200
    # Mended in the file that only the refused configuration names; the configuration itself stays as it is.
    (web_directory.path / "new.pem").unlink()
    (web_directory.path / "server.pem").rename(web_directory.path / "new.pem")
    until(lambda: web.log.lines[-1][1] == "the web configuration was reloaded")
    assert httpx.get(f"{web.url}/metrics", verify=trusting(web_directory)).status_code == 200


def test_users_change_without_a_restart(serving, written):
    web = serving(path=written(f"basic_auth_users:\n  ann: {hashed('one')}\n"))
    assert httpx.get(f"{web.url}/metrics", auth=("ann", "one")).status_code == 200
    written(f"basic_auth_users:\n  ann: {hashed('two')}\n")
    until(lambda: httpx.get(f"{web.url}/metrics", auth=("ann", "two")).status_code == 200)
    assert httpx.get(f"{web.url}/metrics", auth=("ann", "one")).status_code == 401


def test_what_yaml_chokes_on_leaves_the_old_file_in_force(serving, written):
    web = serving(path=written(f"basic_auth_users:\n  ann: {hashed('one')}\n"))
    for text in (BAD["a day that no month has"][0], BAD["a tag that does not fit"][0], ALIASES):
        said = len(web.log.lines)
        written(text)
        until(lambda said=said: len(web.log.lines) > said)
        assert web.log.lines[-1][1] == "the web configuration was not reloaded"
        assert httpx.get(f"{web.url}/metrics", auth=("ann", "one")).status_code == 200
        assert httpx.get(f"{web.url}/metrics").status_code == 401
    written(f"basic_auth_users:\n  ann: {hashed('two')}\n")
    until(lambda: httpx.get(f"{web.url}/metrics", auth=("ann", "two")).status_code == 200)


def test_a_password_is_asked_for_everywhere_but_on_health_paths(serving, written):
    web = serving(path=written(f"basic_auth_users:\n  ann: {hashed('secret')}\n"))
    for path in ("/", "/metrics", "/api/v1/latest", "/nowhere"):
        answer = httpx.get(f"{web.url}{path}")
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Basic ")
    assert httpx.get(f"{web.url}/-/healthy").status_code == 200
    assert httpx.get(f"{web.url}/-/ready").status_code == 503
    # No other spelling of a path gets past.
    for path in ("/-/healthy/../../metrics", "/-/healthy/", "/-/healthy?x", "//-/healthy", "/%2d/healthy"):
        assert httpx.get(f"{web.url}{path}").status_code in (200, 401)
        assert "mpswatch_" not in httpx.get(f"{web.url}{path}").text


@pytest.mark.parametrize(
    "header", ["", "Basic", "Basic !!!", "Basic YW5u", "Bearer x", "basic " + "A" * 2000, "Basic \xff", "Basic AA=="]
)
def test_credentials_that_are_none_are_refused(serving, written, header):
    web = serving(path=written(f"basic_auth_users:\n  ann: {hashed('secret')}\n"))
    answer = httpx.get(f"{web.url}/metrics", headers=[(b"authorization", header.encode("latin-1"))])
    assert answer.status_code in (400, 401)


def test_right_and_wrong_passwords_are_told_apart_and_remembered(serving, written):
    web = serving(path=written(f"basic_auth_users:\n  ann: {hashed('secret', 11)}\n"))
    took = []
    for auth, status in ((("ann", "secret"), 200), (("ann", "Secret"), 401), (("bob", "secret"), 401)):
        for _ in range(2):
            before = time.perf_counter()
            assert httpx.get(f"{web.url}/metrics", auth=auth).status_code == status
            took.append(time.perf_counter() - before)
    first, again = took[0::2], took[1::2]
    assert min(first) > 0.05  # each is checked, that of an unknown user too
    assert max(again) < min(first)  # and none twice


def test_a_flood_of_wrong_passwords_keeps_nobody_out_who_is_known(serving, written):
    web = serving(path=written(f"basic_auth_users:\n  ann: {hashed('secret', 12)}\n"))
    assert httpx.get(f"{web.url}/metrics", auth=("ann", "secret")).status_code == 200

    def guess(number):
        return httpx.get(f"{web.url}/metrics", auth=("ann", f"guess{number}"), timeout=60).status_code

    with ThreadPoolExecutor(30) as pool:
        flood = [pool.submit(guess, number) for number in range(30)]
        until(lambda: any(answer.done() for answer in flood), 60)
        assert httpx.get(f"{web.url}/metrics", auth=("ann", "secret"), timeout=60).status_code == 200
        assert httpx.get(f"{web.url}/-/healthy", timeout=60).status_code == 200
        assert not all(answer.done() for answer in flood)  # they were served while guesses were being checked
        statuses = {answer.result() for answer in flood}
    assert statuses == {401, 503}  # beyond a few that wait, the rest is told to come again


def test_behind_a_password_users_are_shown(serving, written, latest, facts):
    tenants = (facts.tenant(777, "foreign", uid=31337),)
    latest.record(facts.poll(tenants=facts.known(tenants)))
    web = serving(path=written(f"basic_auth_users:\n  ann: {hashed('secret')}\n"))
    page = httpx.get(f"{web.url}/", auth=("ann", "secret")).text
    assert "seen since" in page  # when we saw it first, which is not when it began
    for path in ("/", "/api/v1/latest"):
        assert "31337" in httpx.get(f"{web.url}{path}", auth=("ann", "secret")).text


def test_headers_of_the_file_replace_ours(serving, written):
    text = (
        "http_server_config:\n  headers:\n    Strict-Transport-Security: max-age=60\n    X-Frame-Options: SAMEORIGIN\n"
    )
    headers = httpx.get(f"{serving(path=written(text)).url}/metrics").headers
    assert headers["strict-transport-security"] == "max-age=60"
    assert headers.get_list("x-frame-options") == ["SAMEORIGIN"]


def test_http2_switched_off_is_honoured(written):
    assert read_settings(written("http_server_config:\n  http2: false\n")).headers == {}
