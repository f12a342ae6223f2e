"""What is asked rarely is remembered for the servers that it was said of, and asked again in time."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mpswatch.documents import Conditions, DaemonLook, Envelope, Gpu, GpuLook, Reason, ServerLook
from mpswatch.poll.limits import PERIOD, Limits

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
UNASKED = dict.fromkeys(("active_thread_percentage", "memory_limits"), Reason.NOT_RECORDED)


def known(value):
    return Envelope(value=value, state="measured", source="x", measured_at=NOON, evidence={}, unknown_reason=None)


def gpu(uuid, *, mig=False):
    return GpuLook(
        gpu=Gpu(uuid=uuid, index=0, name="H200", mig_enabled=mig),
        processes=known(()),
        conditions=Conditions(measured_at=NOON, source="nvml"),
    )


def look(*servers, asked=False, **changes):
    facts = {"name": "stack", "pipe_directory": "/p", "up": True, "servers": known(servers)}
    if asked:
        facts |= {"limits_asked_at": NOON, "default_memory_limits": {"GPU-1": 3 << 30}}
    else:
        facts |= {"unknown": {"default_memory_limits": Reason.NOT_RECORDED, "our_session": Reason.PERMISSION}}
    return DaemonLook(**(facts | changes))


def told(pid=633, ticks=5000):
    return ServerLook(pid=pid, start_ticks=ticks, active_thread_percentage=40.0, memory_limits={"GPU-1": None})


def untold(pid=633, ticks=5000):
    return ServerLook(pid=pid, start_ticks=ticks, unknown=UNASKED)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def limits(clock):
    limits = Limits(clock)
    limits.see([gpu("GPU-1")])
    return limits


def test_they_are_due_at_first_and_every_ten_minutes(limits, clock):
    assert limits.due("stack")
    limits.complete(look(told(), asked=True))
    assert not limits.due("stack")
    assert limits.due("another")
    clock.now = PERIOD - 1
    assert not limits.due("stack")
    clock.now = PERIOD
    assert limits.due("stack")


def test_a_look_that_did_not_ask_has_what_was_said_of_the_same_server_and_when(limits):
    asked = look(told(), asked=True)
    assert limits.complete(asked) == asked
    later = limits.complete(look(untold()))
    assert later.servers.value == (told(),)
    assert (later.default_memory_limits, later.limits_asked_at) == ({"GPU-1": 3 << 30}, NOON)
    assert later.unknown == {"our_session": Reason.PERMISSION}


@pytest.mark.parametrize("other", [untold(pid=634), untold(ticks=6000)])
def test_another_server_has_none_of_it_and_is_asked_about_at_the_next_look(limits, other):
    limits.complete(look(told(), asked=True))
    later = limits.complete(look(other))
    assert later.servers.value == (other,)
    assert later.servers.value[0].unknown == UNASKED
    assert limits.due("stack")


def test_what_could_not_be_told_then_is_still_unknown_for_that_reason(limits):
    reasons = dict.fromkeys(UNASKED, Reason.NOT_SUPPORTED)
    limits.complete(look(ServerLook(pid=633, start_ticks=5000, unknown=reasons), asked=True))
    assert limits.complete(look(untold())).servers.value[0].unknown == reasons


def test_nothing_is_remembered_into_a_look_that_knows_no_servers(limits):
    limits.complete(look(told(), asked=True))
    silent = look(
        servers=Envelope(value=None, state="unknown", source="x", measured_at=NOON, evidence={}, unknown_reason="x")
    )
    assert limits.complete(silent) == silent


def test_other_gpus_are_asked_about_at_once_and_a_blind_moment_changes_nothing(limits):
    limits.complete(look(told(), asked=True))
    limits.see(None)
    assert not limits.due("stack")
    limits.see([gpu("GPU-1"), gpu("GPU-2"), gpu("GPU-3", mig=True)])
    assert limits.gpus == ("GPU-1", "GPU-2")
    assert limits.due("stack")


def test_before_any_gpu_was_seen_the_percentages_alone_are_asked(clock):
    limits = Limits(clock)
    assert limits.gpus is None
    limits.see(None)
    assert limits.gpus == ()
