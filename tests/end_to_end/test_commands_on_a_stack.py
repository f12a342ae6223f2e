"""The commands where there is something to see: a stack that answers, and a daemon beside them."""

from __future__ import annotations

import json

import pytest

from mpswatch.daemon.events import Target
from mpswatch.daemon.exit import Exit
from mpswatch.daemon.targets import targets
from mpswatch.documents import PollSnapshot, from_json


@pytest.fixture
def snapshot(command):
    """A fresh look at the stack."""

    def look():
        return from_json(command("poll", "--json").stdout.encode(), PollSnapshot)

    return look


def test_a_poll_tells_managed_from_foreign_and_is_valid(command, stack):
    done = command("poll", "--json")
    assert done.returncode == 0, done.stderr
    seen = from_json(done.stdout.encode(), PollSnapshot)
    kinds = sorted(tenant.kind for tenant in seen.tenants.value)
    assert kinds == ["foreign", "managed", "managed", "server"]
    assert seen.simulated
    table = command("poll").stdout
    assert "SIMULATED" in table
    assert "foreign" in table


def test_doctor_says_that_sweeps_will_run_and_what_it_is_based_on(command):
    done = command("doctor")
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("sweeps will run: GPU-")
    for line in ("ok    control program", "ok    MPS server", "ok    measuring client", "ok    archive", "ok    port"):
        assert line in done.stdout
    assert "note  stack: a rehearsal" in done.stdout


def test_doctor_names_what_passes_by_itself_as_such(command):
    done = command("doctor", sweep={"settle": "1h"})
    assert done.returncode == 0
    assert done.stdout.startswith("sweeps will run, but not yet: ")
    assert "wait" in done.stdout.splitlines()[0]


def test_doctor_puts_what_somebody_must_do_before_what_passes(command, stack):
    command("pause")
    done = command("doctor", sweep={"settle": "1h"})
    assert done.returncode == Exit.FAILED
    assert done.stdout.startswith("sweeps will not run: sweeps are paused; mpswatch resume")


def test_doctor_names_a_server_of_another_user(command, stack):
    stack.tell("restart", server_uid=1234, again=False)
    done = command("doctor")
    assert done.returncode == Exit.FAILED
    assert "uid 1234" in done.stdout.splitlines()[0]
    assert "MEND  MPS server" in done.stdout


def test_doctor_names_the_instances_of_a_partitioned_gpu_and_why_nothing_is_measured(command, stack):
    stack.tell("smi", how="mig")
    done = command("doctor")
    assert done.returncode == Exit.FAILED
    assert "partitioned by MIG" in done.stdout.splitlines()[0]
    assert "where a cap means something else, and left alone: GPU instance 1, compute instance 0 (60 SMs" in done.stdout


def test_a_refused_sweep_says_why_and_what_to_do_and_leaves_an_event(command, stack, short_path):
    stack.tell("die", what="daemon")
    done = command("sweep")
    assert done.returncode == Exit.REFUSED
    assert "daemon_absent" in done.stderr
    assert "nvidia-cuda-mps-control -d" in done.stderr
    assert done.stdout == ""
    (line,) = (short_path / "archive" / "journal.jsonl").read_text().splitlines()
    assert json.loads(line)["reason"] == "daemon_absent"


def test_a_sweep_of_what_is_not_there_names_what_is(command, snapshot):
    done = command("sweep", "--gpu", "GPU-nothing")
    assert done.returncode == Exit.FAILED
    (gpu,) = snapshot().gpus.value
    assert gpu.gpu.uuid in done.stderr


def test_caps_can_be_given_and_are_checked(command):
    done = command("sweep", "--caps", "75", "--json")
    assert done.returncode == 0, done.stderr
    assert [cell["cap"] for cell in json.loads(done.stdout)["cells"]] == ["75"]
    assert command("sweep", "--caps", "0").returncode == Exit.USAGE


def test_a_cell_that_fails_makes_the_sweep_partial(command, stack):
    stack.tell("attach", how="refuse")
    done = command("sweep")
    assert done.returncode == Exit.PARTIAL
    assert "partial: " in done.stdout
    assert "? unknown" in done.stdout


def test_a_sweep_is_not_begun_where_its_result_could_not_be_kept(command, short_path):
    (short_path / "file").write_text("in the way")
    done = command("sweep", archive={"directory": str(short_path / "file" / "archive")})
    assert done.returncode == Exit.FAILED
    assert done.stdout == ""
    assert "archive" in done.stderr
    assert len(done.stderr.splitlines()) == 2  # what is wrong, and what to do


def test_healthcheck_asks_the_running_daemon(start, command):
    daemon = start(sweep={"enabled": False})
    address = daemon.url.removeprefix("http://")
    assert command("healthcheck", "--web.listen-address", address).returncode == 0
    assert command("healthcheck", "--ready", "--web.listen-address", address).returncode in (0, 1)


def test_every_gpu_that_a_server_is_seen_on_is_a_target(snapshot):
    seen = snapshot()
    (gpu,) = seen.gpus.value
    assert targets(seen) == (Target("stack", gpu.gpu.uuid),)
