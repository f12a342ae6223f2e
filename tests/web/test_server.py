"""The server as strangers meet it: routes, negotiation, limits, deadlines, and one write a reply."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import ssl
import subprocess
import sys
import time
from contextlib import ExitStack

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from mpswatch.web import AddressError, Limits, bind

# What Prometheus 2.42 sends.
PROMETHEUS_ACCEPT = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)


def test_metrics_come_as_text_unless_openmetrics_is_asked_for(serving, latest, facts):
    latest.record(facts.poll())
    web = serving()
    plain = httpx.get(f"{web.url}/metrics")
    assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert plain.headers["vary"] == "Accept, Accept-Encoding"
    assert "mpswatch_managed_clients" in {metric.name for metric in parse_text(plain.text)}
    asked = httpx.get(f"{web.url}/metrics", headers={"accept": PROMETHEUS_ACCEPT})
    assert asked.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert "mpswatch_managed_clients" in {metric.name for metric in parse_openmetrics(asked.text)}


def test_gzip_is_given_where_it_is_taken(serving):
    web = serving()
    assert (
        httpx.get(f"{web.url}/metrics", headers={"accept-encoding": "identity"}).headers.get("content-encoding") is None
    )
    packed = httpx.get(f"{web.url}/metrics", headers={"accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.text.startswith("# HELP")
    assert int(packed.headers["content-length"]) < len(packed.content) / 3
    refused = httpx.get(f"{web.url}/metrics", headers={"accept-encoding": "gzip;q=0, *"})
    assert "content-encoding" not in refused.headers


@pytest.mark.part("promtool")
def test_promtool_reads_what_a_scrape_gets(serving, latest, facts):
    latest.record(facts.poll())
    text = httpx.get(f"{serving().url}/metrics").content
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert checked.returncode in (0, 3)
    assert b"error while linting" not in checked.stderr


def test_ready_means_that_a_poll_has_finished_good_or_bad(serving, latest, facts):
    web = serving()
    assert httpx.get(f"{web.url}/-/ready").status_code == 503
    latest.record(facts.blind_poll())
    assert httpx.get(f"{web.url}/-/ready").status_code == 200


def test_healthy_is_the_predicate(serving):
    web = serving()
    assert httpx.get(f"{web.url}/-/healthy").status_code == 200
    web.healthy = False
    assert httpx.get(f"{web.url}/-/healthy").status_code == 503


def test_head_is_a_get_without_its_body(serving):
    web = serving()
    head, get = httpx.head(f"{web.url}/-/healthy"), httpx.get(f"{web.url}/-/healthy")
    assert head.status_code == 200
    assert head.content == b""
    assert head.headers["content-length"] == get.headers["content-length"] == str(len(get.content))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"])
@pytest.mark.parametrize("path", ["/metrics", "/-/healthy", "/nowhere"])
def test_other_methods_are_not_allowed(serving, method, path):
    answer = httpx.request(method, f"{serving().url}{path}")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("path", ["/nowhere", "/metrics/", "/-/", "/..%2f..%2fetc/passwd", "/%00", "//metrics"])
def test_there_is_nothing_elsewhere(serving, path):
    assert httpx.get(f"{serving().url}{path}", follow_redirects=False).status_code == 404


def test_security_headers_are_on_everything(serving):
    web = serving()
    for path in ("/", "/metrics", "/nowhere", "/-/healthy"):
        headers = httpx.get(f"{web.url}{path}").headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        scripts = "script-src 'self';" if path == "/" else "script-src"  # the page's own file, and nothing in line
        assert (scripts in headers["content-security-policy"]) == (path == "/")
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers


def talk(web, data, *, timeout=5.0):
    """Send raw bytes; give everything that comes until the other side closes."""
    with web.connect() as connection:
        connection.settimeout(timeout)
        connection.sendall(data)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
        return received


def test_headers_beyond_the_limit_are_refused(serving):
    web = serving(limits=Limits(header_bytes=4096))
    one = b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 5000 + b"\r\n\r\n"
    assert talk(web, one).startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))
    endless = b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 100_000
    assert talk(web, endless).startswith(b"HTTP/1.1 400 ")
    assert httpx.get(f"{web.url}/-/healthy").status_code == 200


def test_a_path_beyond_the_limit_is_refused(serving):
    web = serving()
    assert httpx.get(f"{web.url}/{'a' * 3000}").status_code == 414
    assert httpx.get(f"{web.url}/metrics?{'a' * 3000}").status_code == 414


def test_a_request_with_a_body_is_refused_and_not_waited_for(serving):
    head = b"GET /metrics HTTP/1.1\r\nHost: x\r\n"
    web = serving()
    assert talk(web, head + b"Content-Length: 1000000\r\n\r\n").startswith(b"HTTP/1.1 413 ")
    assert talk(web, head + b"Transfer-Encoding: chunked\r\n\r\n").startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("length", ["0", "00", "0000000"])
def test_a_body_of_no_bytes_is_none_however_it_is_written(serving, length):
    asked = f"GET /-/healthy HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    assert talk(serving(), asked.encode()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://x/-/healthy", 200),
        ("HTTP://x:9/%2D/healthy?y", 200),
        ("https://x/metrics", 200),
        ("http://x", 200),
        ("http://x?y", 200),
        ("http://x/nowhere", 404),
        ("http:///metrics", 404),
        ("ftp://x/metrics", 404),
    ],
)
def test_a_whole_url_is_a_request_target_too(serving, target, status):
    asked = f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    assert talk(serving(), asked.encode()).startswith(f"HTTP/1.1 {status} ".encode())


def test_who_has_asked_all_and_closes_that_half_still_gets_the_replies(serving):
    web = serving()
    one = b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n"
    for paths, statuses in (
        ([b"metrics"], [b"200"]),
        ([b"-/healthy", b"nowhere", b"metrics"], [b"200", b"404", b"200"]),
    ):
        with web.connect() as connection:
            connection.sendall(b"".join(one % path for path in paths))
            connection.shutdown(socket.SHUT_WR)
            received = b""
            while chunk := connection.recv(65536):  # and then the server closes, long before its idle time is up
                received += chunk
        assert [part[:3] for part in received.split(b"HTTP/1.1 ")[1:]] == statuses
        assert received.endswith(b"\n")
    with web.connect() as connection:
        connection.sendall(b"GET /metr")
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(65536) == b""


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"\0" * 100,
    ],
)
def test_nonsense_is_answered_or_closed_and_harms_nobody(serving, nonsense):
    web = serving(limits=Limits(header_seconds=0.5))
    answer = talk(web, nonsense)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 505 "))
    assert httpx.get(f"{web.url}/-/healthy").status_code == 200


def test_a_silent_connection_is_closed(serving):
    web = serving(limits=Limits(header_seconds=0.3))
    before = time.monotonic()
    assert talk(web, b"") == b""
    assert 0.2 < time.monotonic() - before < 3


def test_headers_that_trickle_in_do_not_extend_their_deadline(serving):
    web = serving(limits=Limits(header_seconds=0.5))
    before = time.monotonic()
    with web.connect() as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n")
        with pytest.raises(OSError, match=r"(?i)reset|broken pipe"):  # noqa: PT012  # the send after the end raises
            while time.monotonic() - before < 5:
                connection.sendall(b"X-A: b\r\n")
                time.sleep(0.05)
    assert time.monotonic() - before < 3


def test_the_deadline_begins_anew_with_each_request_of_a_connection(serving):
    web = serving(limits=Limits(header_seconds=0.4, keep_alive_seconds=30))
    with web.connect() as connection:
        for _ in range(3):
            connection.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
            time.sleep(0.5)  # idle for longer than headers may take
        connection.sendall(b"GET /-/hea")
        assert connection.recv(65536) == b""


def test_an_idle_connection_is_closed_in_the_end(serving):
    web = serving(limits=Limits(keep_alive_seconds=1))
    with web.connect() as connection:
        connection.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
        assert connection.recv(65536) == b""


def test_pipelined_requests_are_answered_in_order(serving):
    web = serving()
    one = b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n"
    with web.connect() as connection:
        connection.sendall(one % b"-/healthy" + one % b"nowhere" + one % b"-/ready")
        received = b""
        while received.count(b"HTTP/1.1 ") < 3:
            received += connection.recv(65536)
    assert [part[:3] for part in received.split(b"HTTP/1.1 ")[1:]] == [b"200", b"404", b"503"]


def test_a_reply_is_one_write(serving):
    """Two small writes would cost 44 ms on a kept connection (../shared/real-parts.md): seen here as two segments."""
    web = serving()
    with web.connect() as connection:
        for _ in range(5):
            connection.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
            reply = connection.recv(65536)
            assert reply.endswith(b"\r\n\r\nmpswatch is healthy\n")


def test_one_who_does_not_read_is_cut_off(serving, latest, facts):
    tenants = tuple(facts.tenant(pid, "foreign", process_name=f"{pid}-" + "x" * 200) for pid in range(20))
    latest.record(facts.poll(tenants=facts.known(tenants)))
    web = serving(limits=Limits(drain_seconds=0.5))
    with web.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
        connection.setblocking(False)
        with pytest.raises(OSError, match=r"(?i)reset|broken pipe"):  # noqa: PT012  # asks on without reading
            until = time.monotonic() + 10
            while time.monotonic() < until:
                try:
                    connection.send(request * 50)
                except BlockingIOError:
                    time.sleep(0.05)
    assert httpx.get(f"{web.url}/-/healthy").status_code == 200


def test_idle_connections_do_not_keep_a_scrape_out(serving):
    web = serving(limits=Limits(connections=20))
    with ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(web.connect())
        for _ in range(3):
            assert httpx.get(f"{web.url}/metrics").status_code == 200


def test_idle_connections_that_come_all_at_once_do_not_either(serving):
    web = serving(limits=Limits(connections=20))
    with ExitStack() as stack:
        web.loop.call_soon_threadsafe(time.sleep, 0.5)  # so that the loop finds them in one turn
        for _ in range(60):
            stack.enter_context(web.connect())
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.1), web.loop).result()
        assert httpx.get(f"{web.url}/metrics").status_code == 200


def test_health_is_answered_while_too_much_is_in_work(serving):
    web = serving(limits=Limits(requests_in_work=0))
    busy = httpx.get(f"{web.url}/metrics")
    assert busy.status_code == 503
    assert busy.headers["retry-after"] == "1"
    assert httpx.get(f"{web.url}/-/healthy").status_code == 200


def test_stopping_does_not_wait_for_those_who_are_silent(serving):
    web = serving()
    with web.connect(), web.connect() as other:
        other.sendall(b"GET /met")
        before = time.monotonic()
        web.stop()
        assert time.monotonic() - before < 5


def test_signals_are_left_to_the_daemon(serving):
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    serving()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    script = """
import asyncio, os, signal, logging
from mpswatch.latest import Latest, Settings
from mpswatch.metrics import Exposition
from mpswatch.web import Protection, WebServer, application, bind
async def main():
    latest = Latest(Settings(daemons={}, poll_interval=15, sweep_interval=None), host="h", simulated=False)
    protection = Protection(None)
    app = application(latest=latest, exposition=Exposition(latest), healthy=lambda: True, verdict=str,
                      protection=protection)
    server = WebServer(app, bind("127.0.0.1", 0), protection=protection, log=logging.getLogger())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: print("ours", flush=True) or server.stop())
    asyncio.get_running_loop().call_later(0.3, os.kill, os.getpid(), signal.SIGTERM)
    await server.serve()
    print("served", flush=True)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=20)
    assert done.stdout.split() == ["ours", "served"]
    assert done.returncode == 0


def test_a_taken_port_is_one_clear_line():
    (first,) = bind("127.0.0.1", 0)
    port = first.getsockname()[1]
    with pytest.raises(AddressError) as caught:
        bind("127.0.0.1", port)
    first.close()
    assert caught.value.detail == f"cannot listen on 127.0.0.1:{port}: Address already in use"
    assert "--web.listen-address" in caught.value.remedy
    assert caught.value.reason == "address_unavailable"


def test_an_address_of_another_host_is_one_clear_line():
    with pytest.raises(AddressError) as caught:
        bind("192.0.2.1", 0)
    assert "an address of this host" in caught.value.remedy
    with pytest.raises(AddressError):
        bind("no-such-host.invalid", 0)


def test_an_empty_host_is_every_interface():
    sockets = bind("", 0)
    port = sockets[0].getsockname()[1]
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        pass
    for listener in sockets:
        listener.close()


def test_the_page_shows_name_version_verdict_runs_and_refusals(serving, latest, facts):
    latest.record(facts.poll())
    latest.record(facts.sweep())
    latest.record(facts.refusal(message="the server's uid is 0, the client's 1000"))
    page = httpx.get(f"{serving().url}/").text
    for text in ("mpswatch on gpu-host", "mpswatch 0.1.0", "sweeps will run", "/metrics", "742.0", "complete"):
        assert text in page
    assert "refused" in page
    assert "uid_mismatch" in page
    assert "the server&#x27;s uid is 0" in page


@pytest.mark.parametrize("path", ["/", "/api/v1/latest"])
def test_users_and_command_lines_are_not_shown_without_a_password(serving, latest, facts, path):
    tenants = (facts.tenant(777, "foreign", uid=31337, process_name="secret-program"),)
    latest.record(facts.poll(tenants=facts.known(tenants)))
    latest.record(facts.sweep())
    latest.record(facts.interference())
    text = httpx.get(f"{serving().url}{path}").text
    assert "pairs-1" in text
    assert "31337" not in text
    assert '"command"' not in text
    assert "/home/someone" not in text


def test_the_newest_documents_come_as_json(serving, latest, facts):
    latest.expect([(facts.DAEMON, facts.GPU, "thorough")])
    latest.record(facts.poll())
    latest.record(facts.sweep(failed={"10": "deadline"}))
    latest.record(facts.interference())
    answer = httpx.get(f"{serving().url}/api/v1/latest")
    assert answer.headers["content-type"] == "application/json"
    content = answer.json()
    assert content["poll"]["host"] == "gpu-host"
    (run,) = content["sweeps"]
    assert run["outcome"] == "partial"
    assert run["document"]["tflops_by_cap"]["value"]["10"] is None
    assert content["never_swept"] == [{"daemon": facts.DAEMON, "gpu_uuid": facts.GPU, "plan": "thorough"}]
    (matrix,) = content["interferences"]
    assert (matrix["daemon"], matrix["gpu_uuid"], matrix["run_id"]) == (facts.DAEMON, facts.GPU, "pairs-1")
    assert len(matrix["document"]["pairs"]) == 24
    json.dumps(content)


def test_names_cannot_break_out_of_the_page(serving, latest, facts):
    evil = "</td><script>alert(1)</script>\u202e\x1b[31m"
    latest.record(facts.refusal(message=evil))
    latest.record(facts.sweep(cells=None, partial_run_note=None))
    web = serving()
    page = httpx.get(f"{web.url}/").text
    assert page.count("<script") == 1  # our own file
    assert "alert(1)" in page
    assert "<script>" not in page
    assert "\u202e" not in page
    assert "\x1b" not in page
    assert httpx.get(f"{web.url}/api/v1/latest").headers["x-content-type-options"] == "nosniff"


def test_tls_handshakes_that_stall_do_not_keep_a_scrape_out(serving, web_directory):
    web = serving(path=web_directory.write(), limits=Limits(handshake_seconds=1))
    trust = ssl.create_default_context(cafile=web_directory.ca)
    with ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(web.connect())
        before = time.monotonic()
        assert httpx.get(f"{web.url}/metrics", verify=trust).status_code == 200
        assert time.monotonic() - before < 5
        stalled = stack.enter_context(web.connect())
        stalled.sendall(b"\x16\x03\x01")
        assert stalled.recv(100) == b""


def test_a_crowd_in_the_handshake_is_waited_out(serving, web_directory):
    web = serving(path=web_directory.write(), limits=Limits(handshake_seconds=1, connections=20))
    trust = ssl.create_default_context(cafile=web_directory.ca)
    with ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(web.connect())
        assert httpx.get(f"{web.url}/metrics", verify=trust, timeout=20).status_code == 200
