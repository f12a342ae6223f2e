"""`daemons: auto` on a rehearsal in a network namespace of its own: the kernel's list of sockets is one namespace's."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import time

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace can only be made by root")

CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS, IFF_UP = 0x8914, 1


@pytest.fixture(autouse=True)
def alone():
    """No other rehearsal of this machine is seen from here, and nobody there is disturbed."""
    libc = ctypes.CDLL(None, use_errno=True)
    outside = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    assert libc.unshare(CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))
    yield
    assert libc.setns(outside, CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
    os.close(outside)


HURRIED = {"REHEARSE_DROPPED_AFTER": "3"}
"""Seconds, instead of a quarter of an hour."""


def watched(daemon):
    return {dict(labels)["daemon"] for labels in daemon.metrics().get("mpswatch_mps_up", {})}


def series_of(daemon, name):
    """The metrics with a sample of that control daemon."""
    return sorted(
        metric for metric, samples in daemon.metrics().items() for labels in samples if ("daemon", name) in labels
    )


def swept(daemon, name):
    return daemon.value("mpswatch_sweeps_total", daemon=name, outcome="complete")


def test_a_control_daemon_that_comes_later_is_found_and_measured_and_one_that_is_gone_is_down_and_then_dropped(
    start, stack, until
):
    first = str(stack.pipe_directory)
    daemon = start(environment=HURRIED, daemons="auto", sweep={"interval": "1h"})
    until(lambda: watched(daemon) == {first})
    until(lambda: swept(daemon, first) == 1)

    second = str(stack.add_daemon("second"))
    stack.add_service("later", daemon="second", busy=False)
    until(lambda: watched(daemon) == {first, second})
    until(lambda: daemon.value("mpswatch_managed_clients", daemon=second) == 1)
    until(lambda: swept(daemon, second) == 1)
    assert swept(daemon, first) == 1, "the one that was measured is not measured again because another came"
    assert [event["daemon"] for event in daemon.events("daemon_found")] == [second]

    stack.tell("die", daemon="second", what="daemon")
    until(lambda: daemon.value("mpswatch_mps_up", daemon=second) == 0)
    (down,) = until(lambda: daemon.events("daemon_down"))
    assert (down["daemon"], down["reason"]) == (second, "daemon_absent")
    assert daemon.value("mpswatch_mps_up", daemon=first) == 1

    until(lambda: watched(daemon) == {first})
    assert series_of(daemon, second) == []
    assert [event["daemon"] for event in until(lambda: daemon.events("daemon_dropped"))] == [second]
    assert swept(daemon, first) == 1
    assert len(daemon.runs()) == 2
    assert daemon.get("/-/healthy").status_code == 200


def test_the_last_control_daemon_is_reported_down_for_ever(start, stack, until):
    daemon = start(environment=HURRIED, daemons="auto", sweep={"enabled": False})
    until(lambda: daemon.value("mpswatch_mps_up") == 1)
    stack.tell("die", what="daemon")
    until(lambda: daemon.value("mpswatch_mps_up") == 0)
    time.sleep(4)
    assert daemon.value("mpswatch_mps_up", daemon=str(stack.pipe_directory)) == 0
    assert daemon.events("daemon_dropped") == []
