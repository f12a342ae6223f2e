from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mpswatch.documents import Reason
from mpswatch.tenants import foreign_unknown, key, tell_apart


def test_the_recorded_host_has_a_server_two_managed_and_one_foreign(scene):
    daemons = [scene.daemon(scene.server(633, (577, 578)))]
    gpus = [
        scene.gpu(scene.row(577, 636, mps=True), scene.row(578, 636, mps=True), scene.row(581, 658), scene.row(633, 66))
    ]
    identities = scene.who(577, 578, 581) | scene.who(633, ticks=4000, command="nvidia-cuda-mps")
    tenants, disagreements = scene.join(daemons, gpus, identities)
    assert {tenant.pid: tenant.kind for tenant in tenants} == {
        577: "managed",
        578: "managed",
        581: "foreign",
        633: "server",
    }
    assert disagreements == ()
    assert foreign_unknown(gpus, tenants) == {}
    foreign = tenants[2]
    assert (foreign.used_memory_bytes, foreign.gpu_uuid, foreign.start_ticks) == (658 << 20, scene.uuid, 5000)
    assert (foreign.daemon, foreign.in_client_list, foreign.in_driver_mps_list) == (None, False, False)
    assert foreign.unknown == {}
    assert tenants[0].daemon == "stack"


def test_a_client_of_any_configured_daemon_is_managed(scene):
    daemons = [scene.daemon(scene.server(1, (10,)), name="a"), scene.daemon(scene.server(2, (20,)), name="b")]
    gpus = [scene.gpu(scene.row(10, mps=True), scene.row(20, mps=True), scene.row(30, mps=True))]
    tenants, disagreements = scene.join(daemons, gpus, scene.who(10, 20, 30))
    assert [(t.pid, t.kind, t.daemon) for t in tenants] == [
        (10, "managed", "a"),
        (20, "managed", "b"),
        (30, "foreign", None),
    ]
    (disagreement,) = disagreements
    assert (disagreement.daemon, disagreement.only_in_driver_list) == (None, (30,))


def test_the_servers_number_used_again_is_no_server(scene):
    daemons = [scene.daemon(scene.server(633, (), ticks=4000))]
    gpus = [scene.gpu(scene.row(633))]
    assert scene.kinds(daemons, gpus, scene.who(633, ticks=9999)) == {633: "foreign"}
    assert scene.kinds(daemons, gpus, scene.who(633, ticks=4000)) == {633: "server"}
    assert scene.kinds(daemons, gpus, {}) == {633: "server"}, "a server that has just gone is no foreign tenant"


def test_a_foreign_program_that_calls_itself_a_server_is_foreign(scene):
    daemons = [scene.daemon(scene.server(633))]
    gpus = [scene.gpu(scene.row(7, name="nvidia-cuda-mps-server"))]
    assert scene.kinds(daemons, gpus, scene.who(7, command="nvidia-cuda-mps")) == {7: "foreign"}


def test_ours_are_the_processes_of_the_session_that_holds_the_lock(scene):
    daemons = [scene.daemon(scene.server(633, (577, 900)), session=880)]
    gpus = [scene.gpu(scene.row(577, mps=True), scene.row(900, mps=True), scene.row(901))]
    identities = scene.who(577) | scene.who(900, 901, session=880)
    tenants, _ = scene.join(daemons, gpus, identities)
    assert [(t.pid, t.kind, t.daemon) for t in tenants] == [
        (577, "managed", "stack"),
        (900, "ours", "stack"),
        (901, "ours", "stack"),
    ], "901 is not on the list yet, but it is nobody else's"
    assert tenants[2].in_client_list is False


def test_while_the_lock_is_held_a_client_that_cannot_be_identified_is_unresolved(scene):
    gpus = [scene.gpu(scene.row(577, mps=True))]
    held = scene.daemon(scene.server(633, (577,)), session=880)
    assert scene.kinds([held], gpus, {}) == {577: "unresolved"}
    free = scene.daemon(scene.server(633, (577,)))
    assert scene.kinds([free], gpus, {}) == {577: "managed"}
    unclear = scene.daemon(scene.server(633, (577,)), unknown={"our_session": Reason.IDENTITY_AMBIGUOUS})
    tenants, _ = scene.join([unclear], gpus, scene.who(577))
    assert tenants[0].kind == "unresolved"
    assert tenants[0].unknown["kind"] is Reason.IDENTITY_AMBIGUOUS


def test_memory_of_a_process_that_is_gone_is_unresolved_and_makes_no_foreign_figure_wrong(scene):
    gpus = [scene.gpu(scene.row(7), scene.row(8))]
    tenants, disagreements = scene.join([scene.daemon(scene.server())], gpus, scene.who(8))
    gone, foreign = tenants
    assert (gone.kind, gone.start_ticks, gone.uid) == ("unresolved", None, None)
    assert gone.unknown == dict.fromkeys(("kind", "start_ticks", "uid"), Reason.PROCESS_GONE)
    assert foreign.kind == "foreign"
    assert foreign_unknown(gpus, tenants) == {}
    assert disagreements == ()


SILENT = [Reason.DAEMON_SILENT, Reason.DAEMON_ABSENT, Reason.DAEMON_NONSENSE, Reason.PROTOCOL_UNSUPPORTED]


@pytest.mark.parametrize("reason", SILENT)
def test_while_the_daemon_is_silent_the_driver_still_tells_foreign_from_managed(scene, reason):
    daemons = [scene.daemon(up=None, reason=reason)]
    gpus = [scene.gpu(scene.row(577, mps=True), scene.row(581))]
    tenants, disagreements = scene.join(daemons, gpus, scene.who(577, 581))
    managed, foreign = tenants
    assert (managed.kind, managed.unknown["kind"]) == ("unresolved", reason)
    assert (managed.in_client_list, managed.unknown["in_client_list"]) == (None, reason)
    assert foreign.kind == "foreign"
    assert foreign_unknown(gpus, tenants) == {}, "what the driver books to MPS is no foreign tenant"
    assert disagreements == (), "one side alone disagrees with nobody"


def test_while_the_daemon_is_silent_and_the_driver_does_not_say_the_foreign_figure_is_unknown(scene):
    daemons = [scene.daemon(up=None, reason=Reason.DAEMON_SILENT)]
    gpus = [scene.gpu(scene.row(577, mps=None), scene.row(581, mps=None))]
    tenants, _ = scene.join(daemons, gpus, scene.who(577, 581))
    assert {tenant.kind for tenant in tenants} == {"unresolved"}
    assert foreign_unknown(gpus, tenants) == {scene.uuid: Reason.DAEMON_SILENT}


def test_one_silent_daemon_of_two_is_enough_to_make_a_stranger_unresolved(scene):
    daemons = [
        scene.daemon(scene.server(1, (10,)), name="a"),
        scene.daemon(name="b", up=None, reason=Reason.DAEMON_SILENT),
    ]
    gpus = [scene.gpu(scene.row(10, mps=True), scene.row(20, mps=True))]
    assert scene.kinds(daemons, gpus, scene.who(10, 20)) == {10: "managed", 20: "unresolved"}


def test_clients_of_a_server_that_vanished_are_not_known_either(scene):
    daemons = [scene.daemon(scene.server(633, None))]
    gpus = [scene.gpu(scene.row(577, mps=True), scene.row(581, mps=None), scene.row(582))]
    tenants, _ = scene.join(daemons, gpus, scene.who(577, 581, 582))
    assert [tenant.kind for tenant in tenants] == ["unresolved", "unresolved", "foreign"]
    assert foreign_unknown(gpus, tenants) == {scene.uuid: Reason.SERVER_VANISHED}


@pytest.mark.parametrize("reason", [Reason.IDENTITY_AMBIGUOUS, Reason.SERVER_VANISHED])
def test_a_daemon_whose_server_is_no_such_process_here_may_list_other_numbers(scene, reason):
    """A control daemon in a container of its own: its client 577 is not the 577 that the driver lists."""
    server = msgspec.structs.replace(scene.server(633, (577,)), start_ticks=None, unknown={"start_ticks": reason})
    gpus = [scene.gpu(scene.row(577), scene.row(9000, mps=True), scene.row(9001, mps=None))]
    tenants, disagreements = scene.join([scene.daemon(server)], gpus, scene.who(577, 9000, 9001))
    assert [tenant.kind for tenant in tenants] == ["foreign", "unresolved", "unresolved"]
    assert foreign_unknown(gpus, tenants) == {scene.uuid: reason}
    assert disagreements == ()


def test_a_server_stays_a_server_while_its_daemon_is_silent(scene):
    gpus = [scene.gpu(scene.row(633, 66, name="nvidia-cuda-mps-server"))]
    identities = scene.who(633, ticks=4000, command="nvidia-cuda-mps")
    before, _ = scene.join([scene.daemon(scene.server(633))], gpus, identities)
    silent = [scene.daemon(up=None, reason=Reason.DAEMON_SILENT)]
    for _ in range(3):
        before, _ = scene.join(silent, gpus, identities, before)
        assert [(t.kind, t.daemon) for t in before] == [("server", "stack")]
    again = scene.who(633, ticks=9000, command="nvidia-cuda-mps")
    tenants, _ = scene.join(silent, gpus, again, before)
    assert tenants[0].kind == "unresolved", "another process under the same number, which may be a new server"
    assert foreign_unknown(gpus, tenants) == {scene.uuid: Reason.DAEMON_SILENT}


def test_who_was_foreign_stays_foreign_while_a_daemon_is_silent(scene):
    """A process joins its daemon, or none, with its first context, and never changes."""
    gpus = [scene.gpu(scene.row(30, mps=True))]
    before, _ = scene.join([scene.daemon(scene.server(633))], gpus, scene.who(30))
    assert before[0].kind == "foreign", "a client of a daemon that is not configured"
    silent = [scene.daemon(up=None, reason=Reason.DAEMON_SILENT)]
    assert scene.kinds(silent, gpus, scene.who(30), before) == {30: "foreign"}
    assert scene.kinds(silent, gpus, scene.who(30, ticks=6000), before) == {30: "unresolved"}


def test_one_process_on_two_gpus_is_two_tenants(scene):
    gpus = [scene.gpu(scene.row(7, 10)), scene.gpu(scene.row(7, 20), uuid="GPU-2", index=1)]
    tenants, _ = scene.join([scene.daemon(scene.server())], gpus, scene.who(7))
    assert [(t.gpu_uuid, t.used_memory_bytes >> 20) for t in tenants] == [(scene.uuid, 10), ("GPU-2", 20)]
    assert len({key(tenant) for tenant in tenants}) == 2


def test_a_client_without_a_row_stays_visible(scene):
    daemons = [scene.daemon(scene.server(633, (577, 578)))]
    tenants, disagreements = scene.join(daemons, [scene.gpu(scene.row(577, mps=True))], scene.who(577, 578))
    lonely = tenants[1]
    assert (lonely.pid, lonely.kind, lonely.gpu_uuid, lonely.used_memory_bytes) == (578, "managed", None, None)
    assert lonely.unknown["gpu_uuid"] is Reason.NOT_RECORDED
    assert lonely.in_driver_mps_list is False
    (disagreement,) = disagreements
    assert (disagreement.daemon, disagreement.gpu_uuid) == ("stack", scene.uuid)
    assert disagreement.only_in_client_list == (578,)


def test_a_client_without_a_row_while_a_gpu_is_unknown_disagrees_with_nobody(scene):
    daemons = [scene.daemon(scene.server(633, (577,)))]
    tenants, disagreements = scene.join(daemons, [scene.gpu(reason=Reason.GPU_LOST)], scene.who(577))
    assert tenants[0].unknown["gpu_uuid"] is Reason.GPU_LOST
    assert tenants[0].in_driver_mps_list is None
    assert disagreements == ()


def test_a_client_that_the_driver_does_not_call_one_disagrees(scene):
    daemons = [scene.daemon(scene.server(633, (577,)))]
    tenants, (disagreement,) = scene.join(daemons, [scene.gpu(scene.row(577))], scene.who(577))
    assert tenants[0].kind == "managed"
    assert (disagreement.only_in_client_list, disagreement.only_in_driver_list) == ((577,), ())


def test_a_driver_that_does_not_say_disagrees_with_nobody(scene):
    daemons = [scene.daemon(scene.server(633, (577,)))]
    tenants, disagreements = scene.join(
        daemons, [scene.gpu(scene.row(577, mps=None), scene.row(581, mps=None))], scene.who(577, 581)
    )
    assert [tenant.kind for tenant in tenants] == ["managed", "foreign"], "the daemons' own lists are enough"
    assert disagreements == ()


def test_whoever_has_just_gone_is_no_disagreement(scene):
    daemons = [scene.daemon(scene.server(633, (577,)))]
    _, disagreements = scene.join(daemons, [scene.gpu(scene.row(600, mps=True))], {})
    assert disagreements == ()


def test_a_tenant_is_first_seen_once_and_a_number_used_again_is_a_new_tenant(scene):
    daemons, gpus = [scene.daemon(scene.server())], [scene.gpu(scene.row(7))]
    before, _ = scene.join(daemons, gpus, scene.who(7))
    later = scene.now + timedelta(seconds=15)
    kept, _ = scene.join(daemons, gpus, scene.who(7), before)
    assert kept[0].first_seen_at == before[0].first_seen_at
    reused, _ = tell_apart(daemons=daemons, gpus=gpus, identities=scene.who(7, ticks=9000), previous=before, now=later)
    assert reused[0].first_seen_at == later


def test_a_name_comes_from_the_driver_else_from_the_command(scene):
    gpus = [scene.gpu(scene.row(7, name=None), scene.row(8, name="a"), scene.row(9, name=None))]
    tenants, _ = scene.join([scene.daemon(scene.server())], gpus, scene.who(7, command="x\x1b[2J") | scene.who(8))
    assert [tenant.process_name for tenant in tenants] == [r"x\x1b[2J", "a", None]
    assert tenants[2].unknown["process_name"] is Reason.PROCESS_GONE


def test_when_proc_cannot_be_read_at_all_foreign_is_unknown_and_managed_is_not(scene):
    daemons = [scene.daemon(scene.server(633, (577,)))]
    gpus = [scene.gpu(scene.row(577, mps=True), scene.row(581))]
    tenants, _ = scene.join(daemons, gpus, {}, identity_reason=Reason.SOURCE_STUCK)
    assert [tenant.kind for tenant in tenants] == ["managed", "unresolved"]
    assert foreign_unknown(gpus, tenants) == {scene.uuid: Reason.SOURCE_STUCK}


def test_a_gpu_whose_list_is_unknown_has_unknown_foreign_figures(scene):
    gpus = [scene.gpu(reason=Reason.PID_NAMESPACE_BLIND), scene.gpu(uuid="GPU-2")]
    assert foreign_unknown(gpus, ()) == {scene.uuid: Reason.PID_NAMESPACE_BLIND}


pids = st.integers(1, 6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    clients=st.sets(pids),
    listed=st.dictionaries(pids, st.sampled_from([True, False, None])),
    alive=st.sets(pids),
    ours=st.sets(pids),
    session=st.sampled_from([None, 880]),
    reason=st.sampled_from([None, Reason.DAEMON_SILENT, Reason.DAEMON_ABSENT]),
    server=pids,
)
def test_whatever_the_views_say_nobody_is_counted_twice_and_foreign_is_proved(  # noqa: PLR0917 - hypothesis fills them
    scene, clients, listed, alive, ours, session, reason, server
):
    daemon = scene.daemon(scene.server(server, tuple(sorted(clients))), session=session, reason=reason)
    gpus = [scene.gpu(*(scene.row(pid, mps=mps) for pid, mps in sorted(listed.items())))]
    identities = {}
    for pid in alive:
        identities |= scene.who(pid, session=880 if pid in ours else 1, ticks=4000)
    tenants, disagreements = scene.join([daemon], gpus, identities)
    assert len({key(tenant) for tenant in tenants}) == len(tenants)
    known = clients if reason is None else set()
    assert {tenant.pid for tenant in tenants} == set(listed) | known
    for tenant in tenants:
        assert (tenant.kind == "unresolved") == ("kind" in tenant.unknown)
        if tenant.kind == "foreign":
            assert tenant.pid in alive
            assert tenant.pid not in known
            assert reason is None or listed[tenant.pid] is False
        if session is not None and tenant.pid in ours & alive and not (reason is None and tenant.pid == server):
            assert tenant.kind == "ours"
    if not foreign_unknown(gpus, tenants):
        doubtful = [t for t in tenants if t.kind == "unresolved" and t.gpu_uuid and t.pid in alive]
        assert all(t.in_driver_mps_list for t in doubtful)
    for disagreement in disagreements:
        assert disagreement.only_in_client_list or disagreement.only_in_driver_list
