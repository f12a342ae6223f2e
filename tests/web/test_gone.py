"""Nothing is kept of a connection that is over."""

from __future__ import annotations

import gc
import ssl
import time
from asyncio.sslproto import SSLProtocol

from mpswatch.web.protocol import GuardedProtocol


def kept():
    gc.collect()
    return sum(isinstance(thing, GuardedProtocol) for thing in gc.get_objects())


def test_a_connection_that_its_client_has_closed_is_gone_long_before_its_idle_time_is_up(serving):
    running = serving()
    before = kept()
    clients = [running.connect() for _ in range(50)]
    for client in clients:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"
    assert kept() - before == 50
    for client in clients:
        client.close()
    end = time.monotonic() + 5
    while kept() > before and time.monotonic() < end:
        time.sleep(0.05)
    assert kept() == before


def test_an_idle_tls_connection_reserves_what_a_request_needs(serving, web_directory):
    running = serving(path=web_directory.write())
    trusting = ssl.create_default_context(cafile=web_directory.ca)
    clients = [trusting.wrap_socket(running.connect(), server_hostname="127.0.0.1") for _ in range(20)]
    try:
        gc.collect()
        buffers = [len(thing._ssl_buffer) for thing in gc.get_objects() if isinstance(thing, SSLProtocol)]
        assert len(buffers) >= 20
        assert max(buffers) <= 16 << 10
    finally:
        for client in clients:
            client.close()
