"""Nothing is kept of a connection that is over."""

from __future__ import annotations

import gc
import time

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
