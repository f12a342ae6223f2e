"""The daemon as its users meet it: a process that is scraped, signalled, paused, reloaded and restarted."""

import os
import signal
import time
from pathlib import Path

import pytest

SLOW = {"iters": 4000, "caps": [100, 50, 25, 10]}
"""Cells long enough to be met in the middle."""

fault = pytest.mark.fault


@pytest.fixture
def watch(shared_code):
    """Watch a daemon for what its four places say (`Watched.says`)."""
    return shared_code("end_to_end/watched.py").Watched


def test_what_is_on_the_gpu_and_what_each_cap_gives_can_be_scraped(start, until):
    daemon = start()
    until(lambda: daemon.value("mpswatch_sweeps_total", outcome="complete") == 1)
    assert daemon.get("/-/healthy").status_code == daemon.get("/-/ready").status_code == 200
    assert daemon.value("mpswatch_simulated") == 1
    assert daemon.value("mpswatch_managed_clients", daemon="stack") == 2
    assert daemon.value("mpswatch_foreign_tenants") == 1
    assert daemon.value("mpswatch_foreign_memory_bytes") == 658 << 20
    assert daemon.value("mpswatch_own_clients", daemon="stack") == 0
    for cap, seen in (("100", 132), ("50", 66)):
        assert daemon.value("mpswatch_cap_sm_count", cap=cap) == seen
        assert daemon.value("mpswatch_cap_self_managed", cap=cap) == 1
        assert daemon.value("mpswatch_cap_tflops", cap=cap) > 0
    assert [line["event"] for line in daemon.said("sweeps will run")]
    latest = daemon.get("/api/v1/latest").json()
    assert '"simulated":true' in daemon.get("/api/v1/latest").text.replace(" ", "")
    assert latest
    assert "simulated" in daemon.get("/").text.lower()


def test_the_archive_holds_the_run_that_was_published(start, until):
    daemon = start()
    until(lambda: daemon.value("mpswatch_sweeps_total", outcome="complete") == 1)
    (run,) = until(daemon.runs)
    assert run["simulated"]
    assert run["complete_sweep"]
    assert run["trigger"] == "schedule"
    assert [cell["state"] for cell in run["cells"]] == ["simulated", "simulated"]
    assert run["tflops_by_cap"]["value"]["50"] == daemon.value("mpswatch_cap_tflops", cap="50")
    assert daemon.value("mpswatch_archive_writes_total") == 1


def test_it_stays_small_and_loads_neither_torch_nor_numpy(start, until):
    daemon = start()
    until(lambda: daemon.value("mpswatch_sweeps_total", outcome="complete") == 1)
    mapped = Path(f"/proc/{daemon.pid}/maps").read_text()
    assert "numpy" not in mapped
    assert "torch" not in mapped
    assert daemon.value("process_resident_memory_bytes") < 50 << 20


def test_a_tenant_that_comes_and_goes_is_counted_and_remembered(start, stack, until):
    daemon = start(sweep={"enabled": False})
    until(lambda: daemon.value("mpswatch_foreign_tenants") == 1)
    pid = stack.add_foreign("training", 2400)
    until(lambda: daemon.value("mpswatch_foreign_tenants") == 2)
    stack.remove(pid)
    until(lambda: daemon.value("mpswatch_foreign_tenants") == 1)
    until(lambda: daemon.events("tenant_left"))
    assert [event["details"]["pid"] for event in daemon.events("tenant_appeared")] == [pid]
    assert daemon.value("mpswatch_sweeps_total", outcome="complete") in (0, None)


def test_polls_go_on_while_a_sweep_runs(start, until):
    daemon = start(sweep=SLOW)
    until(lambda: daemon.value("mpswatch_sweep_running") == 1)
    seen = set()
    until(
        lambda: (
            seen.add(daemon.value("mpswatch_poll_last_success_timestamp_seconds", source="mps"))
            or len(seen) >= 3
            or daemon.value("mpswatch_sweep_running") == 0
        )
    )
    assert len(seen) >= 3
    assert daemon.value("mpswatch_own_clients", daemon="stack") in (0, 1)
    assert daemon.value("mpswatch_managed_clients", daemon="stack") == 2


def test_a_frozen_control_daemon_is_named_and_takes_nothing_else_down(start, stack, until):
    daemon = start(sweep={"enabled": False})
    until(lambda: daemon.value("mpswatch_poll_success", source="mps") == 1)
    stack.tell("hang")
    until(lambda: daemon.value("mpswatch_poll_success", source="mps") == 0)
    assert daemon.value("mpswatch_managed_clients", daemon="stack") is None
    assert daemon.value("mpswatch_poll_success", source="nvidia-smi") == 1
    assert daemon.get("/-/healthy").status_code == 200
    stack.tell("resume")
    until(lambda: daemon.value("mpswatch_managed_clients", daemon="stack") == 2)
    named = [line for line in daemon.said("source does not answer") if line["source"] == "mps"]
    assert len(named) == 1
    assert named[0]["reason"] == "daemon_silent"


def test_a_stop_in_the_middle_of_a_sweep_lets_the_client_drain_and_keeps_what_was_measured(start, stack, until):
    daemon = start(sweep=SLOW)
    until(lambda: daemon.value("mpswatch_own_clients", daemon="stack") == 1)
    assert daemon.stop() == 0
    (run,) = daemon.runs()
    assert not run["complete_sweep"]
    assert "stopped" in run["partial_run_note"]
    assert daemon.events("stopped")
    stack.wait_for_clients([])


def test_a_second_signal_leaves_at_once_and_the_client_still_drains_by_itself(start, stack, until):
    daemon = start(sweep={**SLOW, "iters": 20000})
    until(lambda: daemon.value("mpswatch_own_clients", daemon="stack") == 1)
    stack.tell("hang")  # so that the sweep cannot end quickly: its last look waits for the control daemon
    daemon.signal(signal.SIGTERM)
    until(lambda: daemon.said("stopping"))
    daemon.signal(signal.SIGINT)
    assert daemon.wait() == 130
    stack.tell("resume")
    stack.wait_for_clients([])


def test_killed_in_mid_sweep_it_starts_again_without_sweeping_and_shows_the_last_run(start, stack, until):
    daemon = start()
    until(lambda: daemon.value("mpswatch_sweeps_total", outcome="complete") == 1)
    daemon.signal(signal.SIGUSR1)
    until(lambda: len(daemon.events("sweep_started")) == 2)
    daemon.signal(signal.SIGKILL)
    daemon.wait()
    again = start()
    until(lambda: again.value("mpswatch_cap_tflops", cap="100"))
    time.sleep(1.0)  # several polls
    assert again.value("mpswatch_sweeps_total", outcome="complete") == 0
    assert len(again.events("sweep_started")) == 2
    finished = again.value("mpswatch_sweep_last_run_timestamp_seconds")
    assert finished < again.value("mpswatch_start_time_seconds")
    stack.wait_for_clients([])


def test_a_signal_asks_for_a_sweep_now(start, until):
    daemon = start(sweep={"enabled": False})
    until(lambda: daemon.value("mpswatch_poll_success", source="mps") == 1)
    daemon.signal(signal.SIGUSR1)
    until(lambda: daemon.value("mpswatch_sweeps_total", outcome="complete") == 1)
    (run,) = until(daemon.runs)
    assert run["trigger"] == "signal"


@fault("configuration reloaded with a fault in it")
def test_a_faulty_new_configuration_is_refused_and_the_old_one_stays(start, configuration, until, watch):
    daemon = start(sweep={"enabled": False})
    until(lambda: daemon.value("mpswatch_managed_clients", daemon="stack") == 2)
    watched = watch(daemon)
    configuration(poll={"interval": "never"}, sweep={"headrom": 3})
    daemon.signal(signal.SIGHUP)
    (event,) = until(lambda: daemon.events("configuration_rejected"))
    assert "poll.interval" in event["message"]
    assert "sweep.headrom" in event["message"]
    watched.says(
        metrics={"poll_interval_seconds": 0.3, 'managed_clients{daemon="stack"}': 2},
        page=["managed: 2 processes", "configuration_rejected"],
        document={"events": lambda events: events[0]["kind"] == "configuration_rejected"},
        log=[{"event": "the new configuration is not taken, the old one stays", "detail": "sweep.headrom"}],
        journal=["configuration_rejected"],
    )
    daemon.signal(signal.SIGUSR1)
    until(lambda: daemon.value("mpswatch_sweeps_total", outcome="complete") == 1)


@fault("port taken")
def test_whoever_comes_to_a_taken_port_does_not_start_and_the_one_that_has_it_goes_on(
    start, beside, short_path, until, watch
):
    daemon = start(sweep={"enabled": False})
    until(lambda: daemon.value("mpswatch_managed_clients", daemon="stack") == 2)
    watched = watch(daemon)
    address = daemon.url.removeprefix("http://")
    (short_path / "pipe").mkdir()
    second = beside(
        "run",
        daemons=[{"name": "second", "pipe_directory": str(short_path / "pipe")}],
        web={"listen_address": address},
        archive={"directory": str(short_path / "archive-2")},
    )
    assert second.wait() == 6
    line, remedy = (short_path / "beside.log").read_text().splitlines()
    assert address in line
    assert "--web.listen-address" in remedy
    watched.says(
        metrics={'managed_clients{daemon="stack"}': 2, 'mps_up{daemon="second"}': None},
        page=["managed: 2 processes"],
        document={"poll": {"daemons": [{"name": "stack"}]}},
        log=[],
    )


def test_a_good_new_configuration_is_taken_without_a_restart(start, configuration, until):
    daemon = start(sweep={"enabled": False})
    until(lambda: daemon.value("mpswatch_poll_interval_seconds") == 0.3)
    configuration(poll={"interval": "500ms"}, sweep={"interval": "2h"}, metrics={"tenant_names": 1})
    daemon.signal(signal.SIGHUP)
    until(lambda: daemon.value("mpswatch_poll_interval_seconds") == 0.5)
    assert daemon.value("mpswatch_sweep_interval_seconds") == 7200
    (event,) = until(lambda: daemon.events("configuration_reloaded"))
    assert event["details"]["needs_restart"] == ["metrics"]
    until(lambda: daemon.value("mpswatch_sweeps_total", outcome="complete") == 1)


def test_a_pause_holds_sweeps_across_a_restart_until_it_is_lifted(start, command, until):
    archive = {"sweep": {"interval": "2s"}}
    daemon = start(**archive)
    until(lambda: daemon.value("mpswatch_paused") == 0)
    assert command("pause", **archive).returncode == 0
    until(lambda: daemon.value("mpswatch_paused") == 1)
    daemon.signal(signal.SIGUSR1)
    until(lambda: (daemon.value("mpswatch_sweep_refusals_total", reason="paused") or 0) >= 1)
    assert daemon.stop() == 0
    again = start(**archive)
    until(lambda: again.value("mpswatch_paused") == 1)
    until(lambda: "paused" in again.get("/").text)
    before = len(again.events("sweep_started"))
    assert command("resume", **archive).returncode == 0
    until(lambda: again.value("mpswatch_paused") == 0)
    until(lambda: len(again.events("sweep_started")) > before)
    assert {event["kind"] for event in again.journal()} >= {"paused", "resumed", "sweep_refused"}


def test_a_refusal_is_an_event_a_metric_and_one_line_of_the_log(start, stack, until):
    stack.tell("fill", leave=2)
    daemon = start(sweep={"interval": "1s"})
    until(lambda: (daemon.value("mpswatch_sweep_refusals_total", reason="server_full") or 0) >= 2)
    assert daemon.runs() == []
    assert {event["reason"] for event in daemon.events("sweep_refused")} == {"server_full"}
    assert len(daemon.said("no sweep")) == 1
    assert [line["level"] for line in daemon.said("sweeps will not run")] == ["warning"]
    stack.tell("drain")
    until(lambda: (daemon.value("mpswatch_sweeps_total", outcome="complete") or 0) >= 1)


def test_a_stuck_client_is_published_across_a_restart_and_until_it_leaves(start, stack, until):
    stack.tell("attach", how="silent")
    daemon = start(sweep={"cell_deadline": "500ms", "caps": [100]})
    until(lambda: daemon.value("mpswatch_stuck_clients", daemon="stack") == 1)
    (said,) = daemon.events("client_stuck")
    daemon.stop()
    again = start(sweep={"enabled": False})
    until(lambda: again.value("mpswatch_stuck_clients", daemon="stack") == 1)
    for pid in said["details"]["pids"]:
        os.kill(pid, signal.SIGKILL)  # it never had a context, so that it takes nobody with it
    until(lambda: again.value("mpswatch_stuck_clients", daemon="stack") == 0)
    assert len(again.events("sweep_started")) == 1


def test_a_sweep_from_the_command_line_is_noticed(start, command, until):
    settings = {"sweep": {"enabled": False}}
    daemon = start(**settings)
    until(lambda: daemon.value("mpswatch_poll_success", source="mps") == 1)
    done = command("sweep", "--json", **settings)
    assert done.returncode == 0, done.stderr
    until(lambda: daemon.value("mpswatch_cap_tflops", cap="100"))
    assert daemon.value("mpswatch_sweeps_total", outcome="complete") in (0, None)  # not an outcome of this process
    assert daemon.said("another process has swept")


def test_a_sweep_from_the_command_line_that_began_before_ours_and_ended_after_it_is_noticed_once(
    start, stack, beside, until
):
    stack.add_daemon("second")
    stack.add_service("translation", daemon="second", busy=False)
    pipes = {"stack": stack.pipe_directory, "second": stack.pipe_directory_of("second")}
    daemons = [{"name": name, "pipe_directory": str(pipe)} for name, pipe in pipes.items()]
    theirs = beside("sweep", "--daemon", "second", daemons=daemons, sweep=SLOW)
    until(lambda: "second" in {event["daemon"] for event in theirs.events("sweep_started")})
    daemon = start(daemons=daemons)
    until(lambda: daemon.said("sweeps will"))
    daemon.signal(signal.SIGUSR1)  # by itself it would wait: somebody has just swept
    until(lambda: daemon.value("mpswatch_sweeps_total", daemon="stack", outcome="complete") == 1)
    assert theirs.program.poll() is None, "it ended too soon for this test"
    assert daemon.value("mpswatch_cap_tflops", daemon="second", cap="100") is None
    assert theirs.wait() == 0
    until(lambda: daemon.value("mpswatch_cap_tflops", daemon="second", cap="100"))
    ours, other = (next(run for run in daemon.runs() if run["mps"]["daemon"] == name) for name in ("stack", "second"))
    assert other["started_at"] < ours["started_at"]
    assert other["finished_at"] > ours["finished_at"]
    assert [line["runs"] for line in daemon.said("another process has swept")] == [1]
    assert daemon.value("mpswatch_sweeps_total", daemon="second", outcome="complete") == 0
    assert [event["kind"] for event in daemon.journal() if event["run_id"] == other["run_id"]] == ["sweep_started"]


def test_of_two_at_once_one_sweeps(start, stack, command, until):
    settings = {"sweep": {**SLOW, "interval": "1h"}}
    daemon = start(**settings)
    until(lambda: daemon.value("mpswatch_own_clients", daemon="stack") == 1)
    second = command("sweep", **settings)
    assert second.returncode == 3
    assert "sweep_running" in second.stderr
    until(lambda: daemon.value("mpswatch_sweeps_total", outcome="complete") == 1)


def test_without_a_control_program_it_runs_on_and_says_what_to_do(start, until):
    daemon = start(mps={"control_program": "/nonexistent/nvidia-cuda-mps-control"})
    until(lambda: daemon.value("mpswatch_poll_success", source="mps") == 0)
    assert daemon.value("mpswatch_mps_up", daemon="stack") is None
    assert daemon.value("mpswatch_poll_success", source="nvidia-smi") == 1
    until(lambda: (daemon.value("mpswatch_sweep_refusals_total", reason="control_program_missing") or 0) >= 1)
    assert daemon.get("/-/healthy").status_code == 200


def test_an_archive_that_cannot_be_written_is_said_and_a_young_daemon_does_not_sweep(start, short_path, until):
    (short_path / "file").write_text("in the way")
    daemon = start(archive={"directory": str(short_path / "file" / "archive")})
    until(lambda: daemon.value("mpswatch_poll_success", source="mps") == 1)
    until(lambda: daemon.said("the archive"))
    assert daemon.said("the archive")[0]["remedy"]
    until(lambda: (daemon.value("mpswatch_sink_failures_total", sink="archive") or 0) >= 1)
    daemon.signal(signal.SIGUSR1)  # a person may
    until(lambda: daemon.value("mpswatch_cap_tflops", cap="100"))
    assert (daemon.value("mpswatch_archive_write_failures_total") or 0) >= 1
    assert daemon.get("/-/healthy").status_code == 200
    assert len(daemon.said("sweep 2")) == 1  # the one that was asked for


def test_stopped_for_a_while_it_goes_on_with_its_polls(start, until):
    daemon = start(sweep={"enabled": False})
    first = until(lambda: daemon.value("mpswatch_poll_last_success_timestamp_seconds", source="mps"))
    os.kill(daemon.pid, signal.SIGSTOP)
    time.sleep(1.5)
    os.kill(daemon.pid, signal.SIGCONT)
    until(lambda: (daemon.value("mpswatch_poll_last_success_timestamp_seconds", source="mps") or 0) > first + 1.5)


@fault("a fault too short to be polled")
def test_a_fault_too_short_to_be_polled_is_counted_and_holds_sweeps(start, stack, until, watch, harmed_on_purpose):
    daemons = [
        {"name": "stack", "pipe_directory": str(stack.pipe_directory), "log_directory": str(stack.log_directory)}
    ]
    daemon = start(daemons=daemons, sweep={"enabled": False, "fault_quiet": "10m"})
    until(lambda: daemon.value("mpswatch_gpu_faults_total", daemon="stack") == 0)
    watched = watch(daemon)
    harmed_on_purpose.append(stack.add_service("busy", memory_mib=100))
    stack.tell("break")
    watched.says(
        metrics={'gpu_faults_total{daemon="stack"}': 1},
        page=["server_fault stack"],
        document={"events": lambda events: "server_fault" in {event["kind"] for event in events}},
        log=[{"kind": "server_fault"}],
        journal=["server_fault"],
    )
    (event,) = until(lambda: daemon.events("server_fault"))
    assert "encountered a fatal GPU error" in event["message"]

    def asked_and_refused():  # at once it is refused for the fault that still stands: asked until that is over
        daemon.signal(signal.SIGUSR1)
        time.sleep(0.5)
        return daemon.value("mpswatch_sweep_refusals_total", reason="recent_fault")

    until(asked_and_refused)
    assert daemon.events("sweep_started") == []
    assert daemon.stop() == 0
    again = start(daemons=daemons, sweep={"interval": "1h", "fault_quiet": "10m"})
    until(lambda: again.value("mpswatch_sweep_refusals_total", reason="recent_fault") == 1)  # nor after a restart
    assert again.events("sweep_started") == []
