from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mpswatch.changes import changes, remember
from mpswatch.documents import Event, Reason, from_json, to_json


def kinds(events):
    return [event.kind for event in events]


def test_the_first_look_is_no_event(scene):
    assert changes(None, scene.snapshot([scene.daemon(scene.server())], [scene.gpu(scene.row(7))], scene.who(7))) == ()


def test_nothing_new_is_no_event(scene):
    look = scene.snapshot([scene.daemon(scene.server(633, (7,)))], [scene.gpu(scene.row(7, mps=True))], scene.who(7))
    assert changes(look, look) == ()


def test_a_tenant_that_comes_and_goes_is_two_events(scene):
    daemons = [scene.daemon(scene.server())]
    without = scene.snapshot(daemons, [scene.gpu()])
    with_it = scene.snapshot(daemons, [scene.gpu(scene.row(581, 658, name="llama"))], scene.who(581, uid=1000))
    (appeared,) = changes(without, with_it)
    assert (appeared.kind, appeared.gpu_uuid) == ("tenant_appeared", scene.uuid)
    assert appeared.message == "foreign tenant appeared: pid 581, llama, 658 MiB"
    assert appeared.details["kind"] == "foreign"
    assert appeared.details["uid"] == 1000
    (left,) = changes(with_it, without)
    assert left.kind == "tenant_left"
    assert from_json(to_json(left), Event) == left


def test_a_number_used_again_is_one_that_left_and_one_that_came(scene):
    daemons, gpus = [scene.daemon(scene.server())], [scene.gpu(scene.row(7))]
    before, after = scene.snapshot(daemons, gpus, scene.who(7)), scene.snapshot(daemons, gpus, scene.who(7, ticks=9000))
    assert kinds(changes(before, after)) == ["tenant_appeared", "tenant_left"]


def test_our_own_clients_and_the_server_are_no_news(scene):
    gpus = [scene.gpu(scene.row(900, mps=True), scene.row(633))]
    identities = scene.who(900, session=880) | scene.who(633, ticks=4000)
    quiet = scene.snapshot([scene.daemon(scene.server(633))], [scene.gpu()])
    busy = scene.snapshot([scene.daemon(scene.server(633, (900,)), session=880)], gpus, identities)
    assert changes(quiet, busy) == ()
    assert changes(busy, quiet) == ()


def test_a_client_whose_first_context_comes_later_appears_once(scene):
    daemons = [scene.daemon(scene.server(633, (7,)))]
    early = scene.snapshot(daemons, [scene.gpu()], scene.who(7))
    later = scene.snapshot(daemons, [scene.gpu(scene.row(7, mps=True))], scene.who(7), early.tenants.value)
    assert kinds(changes(scene.snapshot([scene.daemon(scene.server())], [scene.gpu()]), early)) == ["tenant_appeared"]
    assert changes(early, later) == ()
    assert later.tenants.value[0].first_seen_at == early.tenants.value[0].first_seen_at


def test_a_tenant_on_a_gpu_that_could_not_be_looked_at_has_not_left(scene):
    daemons = [scene.daemon(scene.server())]
    seen = scene.snapshot(daemons, [scene.gpu(scene.row(7))], scene.who(7))
    lost = scene.snapshot(daemons, [scene.gpu(reason=Reason.GPU_LOST)])
    blind = scene.snapshot(daemons, gpus_reason=Reason.NVML_MISSING)
    assert changes(seen, lost) == ()
    assert changes(seen, blind) == ()
    assert changes(lost, seen) == (), "and has not come when it is seen again"
    assert changes(blind, seen) == ()


def test_what_came_while_nobody_could_look_is_told_to_one_who_remembers(scene):
    daemons = [scene.daemon(scene.server())]
    seen = scene.snapshot(daemons, [scene.gpu(scene.row(7))], scene.who(7))
    lost = scene.snapshot(daemons, [scene.gpu(reason=Reason.GPU_LOST)])
    after = scene.snapshot(daemons, [scene.gpu(scene.row(8))], scene.who(8))
    memory = remember(remember(None, seen), lost)
    assert kinds(changes(memory, after)) == ["tenant_appeared", "tenant_left"]
    blind = scene.snapshot(daemons, gpus_reason=Reason.NVML_MISSING)
    assert kinds(changes(remember(seen, blind), after)) == ["tenant_appeared", "tenant_left"]


def test_a_daemon_that_goes_and_comes_back(scene):
    up = scene.snapshot([scene.daemon(scene.server())], [scene.gpu()])
    absent = scene.snapshot([scene.daemon(up=False, reason=Reason.DAEMON_ABSENT)], [scene.gpu()])
    silent = scene.snapshot([scene.daemon(up=None, reason=Reason.DAEMON_SILENT)], [scene.gpu()])
    (down,) = changes(up, absent)
    assert (down.kind, down.daemon, down.reason) == ("daemon_down", "stack", Reason.DAEMON_ABSENT)
    assert "is gone" in down.message
    (quiet,) = changes(up, silent)
    assert quiet.reason is Reason.DAEMON_SILENT
    assert "cannot be asked" in quiet.message
    assert changes(absent, silent) == ()
    assert kinds(changes(silent, up)) == ["daemon_up"]


def test_another_server_is_a_change(scene):
    def look(*servers):
        return scene.snapshot([scene.daemon(*servers)], [scene.gpu()])

    first, none = look(scene.server(633, uid=1001)), look()
    for other in (scene.server(700), scene.server(633, ticks=9999)):
        (event,) = changes(first, look(other))
        assert event.kind == "server_changed"
        assert event.details["before"][0]["uid"] == 1001
    assert kinds(changes(none, first)) == ["server_changed"]
    assert kinds(changes(first, none)) == ["server_changed"]
    vanishing = msgspec.structs.replace(scene.server(633), start_ticks=None)
    assert changes(first, look(vanishing)) == (), "ticks that could not be read prove nothing"


def test_a_server_replaced_while_its_daemon_was_silent_is_a_change_to_one_who_remembers(scene):
    def look(*servers, **more):
        return scene.snapshot([scene.daemon(*servers, **more)], [scene.gpu()])

    first, second = look(scene.server(633)), look(scene.server(700))
    silent = look(up=None, reason=Reason.DAEMON_SILENT)
    assert kinds(changes(silent, second)) == ["daemon_up"]
    memory = remember(first, silent)
    assert kinds(changes(memory, second)) == ["daemon_up", "server_changed"]
    assert kinds(changes(memory, first)) == ["daemon_up"]


def test_a_server_in_fault_is_told_once(scene):
    def look(state):
        return scene.snapshot([scene.daemon(scene.server(633, state=state))], [scene.gpu()])

    (event,) = changes(look("ACTIVE"), look("FAULT"))
    assert (event.kind, event.reason) == ("server_fault", Reason.SERVER_FAULT)
    assert changes(look("FAULT"), look("FAULT")) == ()
    assert changes(look("FAULT"), look("ACTIVE")) == ()


@pytest.mark.parametrize("order", [1, -1])
def test_a_daemon_that_is_new_in_the_configuration_is_no_event(scene, order):
    one = scene.snapshot([scene.daemon(scene.server(), name="a")], [scene.gpu()])
    two = scene.snapshot([scene.daemon(scene.server(), name="a"), scene.daemon(name="b")], [scene.gpu()])
    assert changes(*[one, two][::order]) == ()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    st.lists(st.tuples(st.sets(st.integers(1, 4)), st.sampled_from(["well", "lost", "blind", "silent"])), max_size=8)
)
def test_over_any_sequence_of_looks_and_faults_whoever_left_had_come_and_nobody_comes_twice(scene, story):
    """The events of a rememberer, replayed, give who is there."""
    memory = scene.snapshot([scene.daemon(scene.server())], [scene.gpu()])
    there = set()
    for present, fault in story:
        rows = [scene.row(pid) for pid in sorted(present)]
        daemon = (
            scene.daemon(up=None, reason=Reason.DAEMON_SILENT) if fault == "silent" else scene.daemon(scene.server())
        )
        gpus = [scene.gpu(reason=Reason.GPU_LOST)] if fault == "lost" else [scene.gpu(*rows)]
        reason = Reason.NVML_MISSING if fault == "blind" else None
        previous = memory.tenants.value or ()
        current = scene.snapshot([daemon], gpus, scene.who(*present), previous, gpus_reason=reason)
        for event in changes(memory, current):
            pid = event.details.get("pid")
            if event.kind == "tenant_appeared":
                assert pid not in there
                there.add(pid)
            if event.kind == "tenant_left":
                there.remove(pid)
        memory = remember(memory, current)
    known = {tenant.pid for tenant in memory.tenants.value or ()}
    assert there <= known
