"""When a client may join: every doubt is a refusal, with its reason and what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpswatch.documents import Context, Reason, SourceLook
from mpswatch.sweep.permit import Circumstances, Limits, LockHolder, Permit, Refusal
from mpswatch.sweep.preflight import decide

LIMITS = Limits(client_uid=1000)
QUIET = Circumstances(need_bytes=1 << 30)


@pytest.fixture
def ask(build):
    """Ask the preflight about one server of our uid, with changes."""

    def ask(servers=None, *, daemon=None, limits=None, permitted=None, cells_run=0, snapshot=None, **circumstances):
        look = build.daemon(*(build.server(uid=1000),) if servers is None else servers, **daemon or {})
        return decide(
            build.snapshot(look, **snapshot or {}),
            daemon="default",
            gpu_uuid=build.gpu_uuid,
            limits=replace(LIMITS, **limits or {}),
            circumstances=replace(QUIET, **circumstances),
            permitted=permitted,
            cells_run=cells_run,
        )

    return ask


def refused(answer, reason):
    assert isinstance(answer, Refusal), answer
    assert answer.reason is reason, answer
    assert answer.detail
    return answer


def test_a_settled_active_server_of_our_uid_with_room_is_permitted(ask, build):
    permit = ask()
    assert isinstance(permit, Permit)
    assert (permit.server_pid, permit.start_ticks, permit.clients) == (633, 1000, (577, 578))
    assert not permit.simulated


def test_a_server_of_another_uid_would_be_shut_down(ask, build):
    assert "uid 1001" in refused(ask([build.server(uid=1001)]), Reason.UID_MISMATCH).remedy


def test_a_server_of_unknown_uid_is_not_tried(ask, build):
    unknown = {"uid": Reason.PERMISSION}
    refused(ask([build.server(uid=None, unknown=unknown)]), Reason.PERMISSION)


def test_a_multi_user_server_takes_any_uid(ask, build):
    assert isinstance(ask([build.server(uid=0, multi_user=True)]), Permit)


def test_without_a_server_a_sweep_would_create_one(ask):
    assert "stack_uid" in refused(ask([]), Reason.NO_SERVER).remedy


def test_without_a_server_a_sweep_may_create_one_for_the_stacks_own_uid(ask):
    permit = ask([], limits={"stack_uid": 1000})
    assert isinstance(permit, Permit)
    assert permit.server_pid is None
    assert "uid 1001" in refused(ask([], limits={"stack_uid": 1001}), Reason.NO_SERVER).remedy


def test_several_servers_are_no_ground_to_guess(ask, build):
    servers = [build.server(uid=1000), build.server(uid=1000, pid=700)]
    assert "633, 700" in refused(ask(servers), Reason.SEVERAL_SERVERS).detail


@pytest.mark.parametrize(
    ("state", "reason"),
    [("INITIALIZING", Reason.SERVER_NOT_ACTIVE), ("FAULT", Reason.SERVER_FAULT), ("Ready", Reason.SERVER_NOT_ACTIVE)],
)
def test_only_an_active_server_is_joined(ask, build, state, reason):
    refused(ask([build.server(uid=1000, server_state=state)]), reason)


def test_a_state_that_nobody_knows_is_not_active(ask, build):
    server = build.server(uid=1000, server_state=None, unknown={"server_state": Reason.SERVER_VANISHED})
    refused(ask([server]), Reason.SERVER_VANISHED)


def test_a_server_must_have_settled(ask, build):
    young = [build.server(uid=1000, age_seconds=119.0)]
    assert refused(ask(young), Reason.SERVER_UNSETTLED).remedy == "wait 1 s"
    assert isinstance(ask([build.server(uid=1000, age_seconds=120.0)]), Permit)
    assert isinstance(ask(young, limits={"settle": 0}), Permit)


def test_a_server_that_this_sweep_created_need_not_settle(ask, build):
    young = build.server(uid=1000, age_seconds=1.0)
    first = ask([], limits={"stack_uid": 1000})
    ours = replace(first, server=young, own=True)
    again = ask([young], permitted=ours)
    assert isinstance(again, Permit)
    assert again.own


@pytest.mark.parametrize("changes", [{"pid": 634}, {"start_ticks": 1001}])
def test_within_a_sweep_the_server_must_be_the_same(ask, build, changes):
    refused(ask([build.server(uid=1000, **changes)], permitted=ask()), Reason.SERVER_CHANGED)


def test_within_a_sweep_the_server_must_not_vanish(ask):
    refused(ask([], permitted=ask(), limits={"stack_uid": 1000}), Reason.SERVER_VANISHED)


def test_within_a_sweep_a_stack_does_not_turn_into_a_rehearsal(ask):
    refused(ask(permitted=ask(), snapshot={"simulated": True}), Reason.SERVER_CHANGED)


def test_a_server_without_a_process_to_be_seen_has_no_identity(ask, build):
    server = build.server(uid=1000, start_ticks=None, unknown={"start_ticks": Reason.PROCESS_GONE})
    refused(ask([server]), Reason.PROCESS_GONE)


@pytest.mark.parametrize(("clients", "permitted"), [(43, True), (44, False), (48, False)])
def test_the_last_places_of_a_server_are_not_ours_to_take(ask, build, clients, permitted):
    answer = ask([build.server(uid=1000, clients=tuple(range(1, clients + 1)))])
    if permitted:
        assert isinstance(answer, Permit)
    else:
        refused(answer, Reason.SERVER_FULL)


def test_places_are_counted_by_contexts_where_a_client_has_several(ask, build):
    context = {"pid": 577, "server_pid": 633, "device": "GPU-d5186d3a", "pid_namespace": None, "command": "python"}
    contexts = tuple(Context(context_id=number, **context) for number in range(44))
    refused(ask([build.server(uid=1000, contexts=contexts)]), Reason.SERVER_FULL)


def test_a_servers_own_limit_goes_before_the_configured_one(ask, build):
    clients = tuple(range(1, 51))
    assert isinstance(ask([build.server(uid=1000, clients=clients, context_limit=60)]), Permit)


def test_a_server_that_does_not_say_its_clients_may_be_full(ask, build):
    refused(ask([build.server(uid=1000, clients=None)]), Reason.DAEMON_NONSENSE)


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        (Reason.DAEMON_ABSENT, "start nvidia-cuda-mps-control -d"),
        (Reason.DAEMON_SILENT, "hangs or is stopped"),
        (Reason.DAEMON_NONSENSE, "ask it by hand"),
        (Reason.CONTROL_PROGRAM_MISSING, "mps.control_program"),
        (Reason.PERMISSION, "run mpswatch as a user who may"),
        (Reason.SOURCE_FAILED, "mpswatch doctor"),
    ],
)
def test_a_daemon_that_cannot_be_asked_is_refused_by_its_own_reason_with_what_mends_it(ask, build, reason, remedy):
    up = False if reason is Reason.DAEMON_ABSENT else None
    answer = refused(ask(daemon={"up": up, "up_reason": reason, "servers": build.unknown(reason)}), reason)
    assert remedy in answer.remedy
    assert ("control -d" in answer.remedy) == (reason is Reason.DAEMON_ABSENT)  # a second daemon mends nothing else


def test_protocol_3_is_not_measured_under(ask, build):
    daemon = {"protocol": "3", "servers": build.unknown(Reason.PROTOCOL_UNSUPPORTED)}
    refused(ask(daemon=daemon), Reason.PROTOCOL_UNSUPPORTED)
    refused(ask(daemon={"protocol": "3"}), Reason.PROTOCOL_UNSUPPORTED)  # also where its servers are known


def test_a_server_that_gives_a_client_less_memory_than_a_cell_needs_is_refused(ask, build):
    def limited(to):
        return [build.server(uid=1000, memory_limits={build.gpu_uuid: to, "GPU-other": 1})]

    answer = refused(ask(limited(64 << 20)), Reason.MEMORY_SHORT)
    assert "gives each client 64 MiB at most" in answer.detail
    for enough in (64 << 30, None):
        assert isinstance(ask(limited(enough)), Permit)


def test_a_daemon_whose_servers_are_not_known_is_refused(ask, build):
    answer = refused(ask(daemon={"servers": build.unknown(Reason.DAEMON_NONSENSE)}), Reason.DAEMON_NONSENSE)
    assert "ask it by hand" in answer.remedy


def test_where_no_gpu_can_be_seen_each_source_is_named_with_its_reason(ask, build):
    sources = tuple(
        SourceLook(source=name, daemon="", success=False, duration_seconds=0.1, reason=reason)
        for name, reason in (("nvml", Reason.NVML_MISSING), ("nvidia-smi", Reason.NVIDIA_SMI_MISSING))
    )
    gpus = build.unknown(Reason.NVML_MISSING)
    answer = refused(ask(snapshot={"gpus": gpus, "sources": sources}), Reason.NVML_MISSING)
    assert "nvml: nvml_missing, nvidia-smi: nvidia_smi_missing" in answer.detail
    assert "libnvidia-ml.so.1" in answer.remedy
    assert "gpu.nvidia_smi" in answer.remedy


def test_a_fault_within_ten_minutes_is_too_recent(ask):
    assert refused(ask(last_fault_age=500.0), Reason.RECENT_FAULT).remedy.startswith("wait 100 s")
    assert isinstance(ask(last_fault_age=600.0), Permit)


def test_another_sweep_is_waited_for(ask):
    refused(ask(lock_holders=(LockHolder(pid=7, age_seconds=3.0),)), Reason.SWEEP_RUNNING)


@pytest.mark.parametrize("age", [None, 10_000.0])
def test_a_lock_whose_taker_is_gone_or_too_old_is_a_client_left_over(ask, age):
    refused(ask(lock_holders=(LockHolder(pid=7, age_seconds=age),)), Reason.CLIENT_LEFT_OVER)


def test_device_memory_must_suffice_with_a_margin(ask, build):
    short = build.conditions(memory_free_bytes=(1 << 30) + (512 << 20) - 1)
    refused(ask(snapshot={"gpus": build.gpu(now=short)}), Reason.MEMORY_SHORT)
    enough = build.conditions(memory_free_bytes=(1 << 30) + (512 << 20))
    assert isinstance(ask(snapshot={"gpus": build.gpu(now=enough)}), Permit)


def test_on_unified_memory_the_hosts_counts(ask, build):
    unified = {"gpus": build.gpu(now=build.conditions(memory_free_bytes=None))}
    assert isinstance(ask(snapshot=unified, available_memory=8 << 30), Permit)
    refused(ask(snapshot=unified, available_memory=1 << 30), Reason.MEMORY_SHORT)
    refused(ask(snapshot=unified, available_memory=None), Reason.MEMORY_SHORT)


def test_a_lost_gpu_that_tells_no_memory_is_not_taken_for_one_of_unified_memory(ask, build):
    conditions = build.conditions(memory_free_bytes=None, unknown={"memory_free_bytes": Reason.GPU_LOST})
    refused(ask(snapshot={"gpus": build.gpu(now=conditions)}, available_memory=8 << 30), Reason.GPU_LOST)


def test_a_partitioned_gpu_is_left_alone(ask, build):
    refused(ask(snapshot={"gpus": build.gpu(mig_enabled=True)}), Reason.MIG)
    assert isinstance(ask(snapshot={"gpus": build.gpu(mig_enabled=None)}), Permit)


def test_a_gpu_that_is_not_there_is_not_swept(ask, build):
    refused(ask(snapshot={"gpus": build.gpu(uuid="GPU-other")}), Reason.NO_GPU)
    refused(ask(snapshot={"gpus": build.unknown(Reason.NVML_MISSING)}), Reason.NVML_MISSING)


def test_a_process_list_that_is_blind_is_no_ground_to_refuse(ask, build):
    """Membership is proved by the daemon's list and /proc alone."""
    assert isinstance(ask(snapshot={"tenants": build.unknown(Reason.PID_NAMESPACE_BLIND)}), Permit)


def test_a_busy_gpu_is_refused_where_a_bound_is_set(ask, build):
    busy = {"gpus": build.gpu(now=build.conditions(utilization_ratio=0.9))}
    assert isinstance(ask(snapshot=busy), Permit)
    refused(ask(snapshot=busy, limits={"max_utilization": 0.5}), Reason.UTILIZATION_HIGH)
    nobody_knows = {
        "gpus": build.gpu(
            now=build.conditions(utilization_ratio=None, unknown={"utilization_ratio": Reason.NOT_SUPPORTED})
        )
    }
    refused(ask(snapshot=nobody_knows, limits={"max_utilization": 0.5}), Reason.NOT_SUPPORTED)


def test_our_own_cells_do_not_make_the_gpu_too_busy_for_the_next(ask, build):
    busy = {"gpus": build.gpu(now=build.conditions(utilization_ratio=0.9))}
    permitted = ask(limits={"max_utilization": 0.5})
    assert isinstance(ask(snapshot=busy, limits={"max_utilization": 0.5}, permitted=permitted, cells_run=1), Permit)
