"""What is published is what was seen, and only as long as it is true."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mpswatch.documents import Reason
from mpswatch.latest import Latest, Settings, Target, WrongStackError
from mpswatch.metrics import families

TARGET = Target("mps", "GPU-4a1bc0de-1111-2222-3333-444455556666", "quick")


def test_before_the_first_poll_everything_is_unknown_and_nothing_is_ready(latest):
    view = latest.view()
    assert view.poll is None
    assert view.poll_unknown == Reason.NO_POLL_YET
    assert not view.first_poll_finished
    assert latest.next_expiry() is None


def test_a_blind_first_poll_makes_it_ready_all_the_same(latest, facts):
    latest.record(facts.blind_poll())
    assert latest.view().first_poll_finished


def test_the_view_is_the_same_object_until_something_changes(latest, facts):
    before = latest.view()
    assert latest.view() is before
    latest.record(facts.poll())
    after = latest.view()
    assert after is not before
    assert after.version != before.version
    assert latest.view() is after


def test_a_poll_vanishes_after_three_intervals_with_its_reason(latest, facts, clock):
    latest.record(facts.poll())
    assert latest.next_expiry() == clock.now + 45
    clock.wait(44.9)
    assert latest.view().poll is not None
    assert not latest.expire()
    clock.wait(0.1)
    assert latest.expire()
    view = latest.view()
    assert view.poll is None
    assert view.poll_unknown == Reason.STALE
    assert view.first_poll_finished
    assert latest.next_expiry() is None


def test_a_stale_poll_is_not_shown_even_when_the_timer_is_late(latest, facts, clock):
    latest.record(facts.poll())
    latest.view()
    clock.wait(45)
    assert latest.view().poll is None


def test_when_a_source_last_answered_outlives_the_poll(latest, facts, clock):
    latest.record(facts.poll())
    later = facts.NOON + timedelta(seconds=15)
    latest.record(facts.blind_poll(later))
    health = latest.view().sources["mps", "mps"]
    assert health.success is False
    assert health.last_success_at == facts.NOON
    clock.wait(45)
    health = latest.view().sources["mps", "mps"]
    assert health.success is None
    assert health.reason == Reason.STALE
    assert health.last_success_at == facts.NOON


def test_a_run_vanishes_after_three_intervals_but_its_times_stay(latest, facts, clock):
    latest.record(facts.sweep())
    clock.wait(3 * 3600)
    health = latest.view().sweeps[TARGET]
    assert health.document is None
    assert health.caps == ("100", "75", "50", "25", "10")
    assert health.finished_at == health.last_success_at == facts.NOON


def test_a_partial_run_replaces_the_curve_but_not_the_time_of_success(latest, facts):
    latest.record(facts.sweep())
    later = facts.NOON + timedelta(hours=1)
    latest.record(facts.sweep(later, failed={"10": Reason.DEADLINE}, run_id="r2"))
    health = latest.view().sweeps[TARGET]
    assert health.document.run_id == "r2"
    assert health.outcome == "partial"
    assert health.finished_at == later
    assert health.last_success_at == facts.NOON


@pytest.mark.parametrize("step", [timedelta(days=-400), timedelta(days=400)])
def test_a_stepped_wall_clock_does_not_age_what_we_saw_ourselves(latest, facts, clock, step):
    latest.record(facts.poll(facts.NOON + step))
    latest.record(facts.sweep(facts.NOON + step))
    clock.wait(44)
    view = latest.view()
    assert view.poll is not None
    assert view.sweeps[TARGET].document is not None


def test_a_newer_run_counts_as_newer_even_when_the_clock_went_back(latest, facts):
    latest.record(facts.sweep(run_id="before"))
    latest.record(facts.sweep(facts.NOON - timedelta(days=1), run_id="after"))
    assert latest.view().sweeps[TARGET].document.run_id == "after"


def test_a_run_from_the_archive_has_its_own_time_and_only_the_rest_of_its_life(latest, facts, clock):
    assert latest.restore([facts.sweep()], now=facts.NOON + timedelta(hours=2)) == (facts.sweep(),)
    view = latest.view()
    assert view.sweeps[TARGET].document is not None
    assert view.sweeps[TARGET].finished_at == facts.NOON
    assert not view.outcomes  # another process ran it
    clock.wait(3600)
    assert latest.view().sweeps[TARGET].document is None


def test_an_old_run_from_the_archive_gives_times_without_a_curve(latest, facts):
    latest.restore([facts.sweep()], now=facts.NOON + timedelta(days=2))
    health = latest.view().sweeps[TARGET]
    assert health.document is None
    assert health.last_success_at == facts.NOON
    assert latest.next_expiry() is None


def test_an_older_run_from_the_archive_does_not_replace_a_newer_one(latest, facts):
    latest.record(facts.sweep(run_id="new"))
    older = facts.sweep(facts.NOON - timedelta(hours=1), run_id="old")
    assert latest.restore([older], now=facts.NOON) == ()
    assert latest.view().sweeps[TARGET].document.run_id == "new"


def test_runs_of_another_host_daemon_or_stack_are_not_ours(latest, facts):
    strangers = [
        facts.sweep(host="elsewhere"),
        facts.sweep(pipe_directory="/run/other", mps=None),
        facts.sweep(simulated=True),
    ]
    assert latest.restore(strangers, now=facts.NOON) == ()
    assert not latest.view().sweeps


def test_a_run_belongs_to_the_daemon_that_has_its_pipe_directory_now(latest, facts):
    latest.configure(Settings(daemons={"renamed": facts.PIPE}, poll_interval=15, sweep_interval=3600))
    latest.restore([facts.sweep()], now=facts.NOON)
    assert [target.daemon for target in latest.view().sweeps] == ["renamed"]


def test_plans_never_share_a_place(latest, facts):
    latest.record(facts.sweep(run_id="q"))
    latest.record(facts.sweep(run_id="t", plan="thorough"))
    assert {target.plan: health.document.run_id for target, health in latest.view().sweeps.items()} == {
        "quick": "q",
        "thorough": "t",
    }


@pytest.mark.parametrize("simulated", [True, False])
def test_a_fact_of_the_other_stack_never_enters(facts, simulated):
    settings = Settings(daemons={"mps": facts.PIPE}, poll_interval=15, sweep_interval=3600)
    latest = Latest(settings, host="h", simulated=simulated)
    for fact in (
        facts.poll(simulated=not simulated),
        facts.sweep(simulated=not simulated),
        facts.refusal(simulated=not simulated),
    ):
        with pytest.raises(WrongStackError):
            latest.record(fact)
    view = latest.view()
    assert view.poll is None
    assert not view.sweeps
    assert not view.runs


def test_a_refusal_is_counted_shown_and_over_with_the_next_run(latest, facts):
    latest.record(facts.refusal(Reason.UID_MISMATCH))
    latest.record(facts.refusal(Reason.UID_MISMATCH))
    view = latest.view()
    assert view.outcomes[TARGET, "refused"] == 2
    assert view.refusals[TARGET, Reason.UID_MISMATCH] == 2
    assert view.refused[TARGET].reason == Reason.UID_MISMATCH
    latest.record(facts.sweep())
    view = latest.view()
    assert not view.refused
    assert view.outcomes[TARGET, "complete"] == 1
    assert [run.outcome for run in view.runs] == ["complete", "refused", "refused"]


@pytest.mark.parametrize("by", ["a run", "a refusal", "a run of another process"])
def test_a_refusal_while_the_gpu_was_unknown_is_over_with_the_next_attempt_on_it(latest, facts, by):
    latest.record(facts.refusal(Reason.SOURCE_STUCK, gpu_uuid=""))
    assert [target.gpu_uuid for target in latest.view().refused] == [""]
    match by:
        case "a run":
            latest.record(facts.sweep())
        case "a refusal":
            latest.record(facts.refusal(Reason.UID_MISMATCH))
        case _:
            latest.restore([facts.sweep(facts.NOON + timedelta(hours=1))], now=facts.NOON + timedelta(hours=2))
    assert [target.gpu_uuid for target in latest.view().refused] == ([facts.GPU] if by == "a refusal" else [])


def test_a_refusal_while_no_gpu_could_be_seen_is_no_further_gpu_to_measure(latest, facts):
    latest.record(facts.refusal(Reason.SOURCE_STUCK, gpu_uuid=""))
    assert [target.gpu_uuid for target in latest.view().to_measure] == [""]  # nothing better is known
    latest.record(facts.sweep())
    latest.record(facts.refusal(Reason.SOURCE_STUCK, gpu_uuid=""))
    assert latest.view().to_measure == (TARGET,)
    assert [target.gpu_uuid for target in latest.view().targets] == ["", facts.GPU]
    published = [
        (family.spec.name, dict(zip(family.spec.labels, labels, strict=True)), value)
        for family in families(latest.view())
        for labels, value in family.samples.items()
    ]
    assert {(name, value) for name, labels, value in published if labels.get("uuid") == "" and "plan" in labels} == {
        ("mpswatch_sweeps_total", 2),
        ("mpswatch_sweep_refusals_total", 2),
        ("mpswatch_last_sweep_refused", 1),
    }
    swept = {"mpswatch_stuck_clients", "mpswatch_sweep_running"}
    assert {labels["uuid"] for name, labels, _ in published if name in swept} == {facts.GPU}


def test_a_run_of_another_process_after_a_refusal_ends_it(latest, facts):
    latest.record(facts.refusal())
    latest.restore([facts.sweep(facts.NOON - timedelta(minutes=1), run_id="before")], now=facts.NOON)
    assert latest.view().refused
    later = facts.NOON + timedelta(minutes=1)
    latest.restore([facts.sweep(later, run_id="after")], now=later)
    assert not latest.view().refused


def test_events_of_an_earlier_process_come_before_ours(latest, facts):
    latest.record(facts.event("started", facts.NOON))
    latest.remember([facts.event("stopped", facts.NOON - timedelta(hours=1)), facts.event("stopped", simulated=True)])
    assert [event.kind for event in latest.view().events] == ["started", "stopped"]


def test_how_a_run_ended_is_told_apart(latest, facts):
    latest.record(facts.sweep())
    latest.record(facts.sweep(failed={"10": Reason.DEADLINE}))
    latest.record(facts.sweep(failed=dict.fromkeys(facts.CURVE, Reason.CLIENT_DIED)))
    latest.record(facts.event("sweep_failed", gpu_uuid=facts.GPU, plan="quick", reason=Reason.INTERNAL_ERROR))
    outcomes = latest.view().outcomes
    assert {outcome: outcomes[TARGET, outcome] for outcome in ("complete", "partial", "failed")} == {
        "complete": 1,
        "partial": 1,
        "failed": 2,
    }


def test_a_sweep_runs_from_its_start_to_its_document(latest, facts):
    latest.record(facts.event("sweep_started", gpu_uuid=facts.GPU, plan="quick"))
    assert latest.view().running == {("mps", facts.GPU)}
    latest.record(facts.sweep())
    assert not latest.view().running


def test_stuck_clients_stay_until_somebody_finds_them_gone(latest, facts):
    latest.record(facts.event("client_stuck", gpu_uuid=facts.GPU, details={"pids": [301]}))
    assert latest.view().stuck["mps", facts.GPU] == (301,)
    latest.record(facts.refusal(Reason.CLIENT_LEFT_OVER))
    assert latest.view().stuck["mps", facts.GPU] == (301,)
    latest.set_stuck("mps", facts.GPU, ())
    assert latest.view().stuck["mps", facts.GPU] == ()


def test_faults_are_counted_from_the_log_alone(latest, facts):
    latest.record(facts.event("server_fault", reason=Reason.SERVER_FAULT, details={"server": {"pid": 100}}))
    assert not latest.view().gpu_faults
    latest.record(facts.event("server_fault", reason=Reason.SERVER_FAULT, details={"count": 3}))
    assert latest.view().gpu_faults == {"mps": 3}


def test_pausing_is_seen_from_its_events(latest, facts):
    latest.record(facts.event("paused"))
    assert latest.view().paused
    latest.record(facts.event("resumed"))
    assert not latest.view().paused


def test_of_a_daemon_that_is_dropped_no_series_is_left_and_history_stays(latest, facts):
    both = {facts.DAEMON: facts.PIPE, "other": "/run/other"}
    latest.configure(Settings(daemons=both, poll_interval=15, sweep_interval=3600))
    latest.expect([(name, facts.GPU, "quick") for name in both])
    for fact in (
        facts.sweep(),
        facts.interference(),
        facts.refusal(),
        facts.event("sweep_started", gpu_uuid=facts.GPU),
        facts.event("client_stuck", gpu_uuid=facts.GPU, details={"pids": [301]}),
        facts.event("server_changed"),
        facts.event("server_fault", details={"count": 3}),
        facts.poll(),
    ):
        latest.record(fact)
    latest.set_fault_log(facts.DAEMON, None)
    assert of_daemon(latest, facts.DAEMON)
    latest.configure(Settings(daemons={"other": "/run/other"}, poll_interval=15, sweep_interval=3600))
    latest.record(facts.poll(daemons=(facts.daemon("other"),), tenants=facts.known(()), sources=()))
    assert of_daemon(latest, facts.DAEMON) == []
    assert of_daemon(latest, "other")
    assert latest.next_expiry() is not None, "the poll's own, and no dropped run's"
    assert [run.target.daemon for run in latest.view().runs] == [facts.DAEMON] * len(latest.view().runs)
    assert latest.view().events


def test_a_server_that_ends_and_the_one_that_comes_after_it_are_one_change(latest, facts):
    for before, after in (([{"pid": 633}], []), ([], [{"pid": 1246}])):
        latest.record(facts.event("server_changed", details={"before": before, "after": after}))
    assert latest.view().server_changes == {facts.DAEMON: 1}


def of_daemon(latest, name):
    """The metrics that have a sample of that daemon."""
    return [
        family.spec.name
        for family in families(latest.view())
        for labels in family.samples
        if name in dict(zip(family.spec.labels, labels, strict=True)).values()
    ]


def test_recent_events_and_runs_are_bounded(latest, facts):
    for _ in range(100):
        latest.record(facts.refusal())
    view = latest.view()
    assert len(view.runs) == 20
    assert len(view.events) == 50


@pytest.mark.parametrize(("told", "published"), [(None, 60), (48, 48)])
def test_the_limit_of_contexts_is_the_configured_one_where_no_command_tells_it(latest, facts, told, published):
    daemons = {facts.DAEMON: facts.PIPE}
    latest.configure(Settings(daemons=daemons, poll_interval=15, sweep_interval=3600, context_limit=60))
    server = facts.server(context_limit=told, unknown={} if told else {"context_limit": Reason.NOT_SUPPORTED})
    look = facts.daemon(servers=facts.known((server,)))
    latest.record(facts.poll(daemons=(look,)))
    limits = {f.spec.name: f.samples for f in families(latest.view())}["mpswatch_mps_contexts_limit"]
    assert limits == {(facts.DAEMON,): published}
