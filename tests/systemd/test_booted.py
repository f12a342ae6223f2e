"""The shipped unit under a real booted systemd, ended in every way while the rehearsal's client is in mid-cell.

The stack counts what a real MPS server would punish: a client that vanishes with work in flight, and the busy
neighbour that dies of it. What a container's systemd cannot show: memory and device limits are not enforced there, and
no CUDA client runs, so that the sandbox beside a real one is not shown here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
SURVIVED = ["stop", "restart", "kill_main", "kill_unit", "freeze"]

pytestmark = [
    pytest.mark.part("systemd-nspawn", "dbus-daemon"),
    pytest.mark.skipif(os.geteuid() != 0, reason="booting a container needs root"),
    pytest.mark.timeout(300),
]

OVERRIDES = """
[Service]
# Another program, the same daemon: watch.py says why.
ExecStart=
ExecStart={python} /t/watch.py /tmp/stack
# Only shorter, so that the test is.
WatchdogSec=3s
TimeoutAbortSec=2s
RestartSec=1s
"""

SCRIPT = """#!/bin/sh
exec >/t/script.log 2>&1
chmod o+x {parents}  # this container's own: what is bound below them may lie in somebody's home
systemd-run --unit=stack --collect -p User=mpswatch -p KillMode=mixed \
    {python} -m mpswatch.rehearsal run /tmp/stack --demo
for try in 1 2 3 4 5 6 7 8 9 10; do
    {python} -m mpswatch.rehearsal status /tmp/stack >/dev/null 2>&1 && break
    sleep 0.5
done
{python} /t/booted.py /tmp/stack /t/results.jsonl
systemctl show mpswatch.service >/t/unit.txt
journalctl --no-pager >/t/journal.txt
systemctl stop stack.service
systemctl exit 0
"""


@pytest.fixture(scope="module")
def boot():
    directory = Path(tempfile.mkdtemp(prefix="mpswatch-boot-"))
    for name in ("watch.py", "booted.py"):
        shutil.copy(HERE / name, directory)
    (directory / "overrides.conf").write_text(OVERRIDES.format(python=sys.executable))
    script = directory / "script.sh"
    needed = {ROOT, Path(sys.prefix), Path(sys.base_prefix)}
    bound = sorted(path for path in needed if not path.is_relative_to("/usr"))
    parents = sorted({str(parent) for path in bound for parent in path.parents} - {"/"})
    script.write_text(SCRIPT.format(python=sys.executable, parents=" ".join(parents)))
    script.chmod(0o755)
    directory.chmod(0o755)
    binds = [f"--bind-ro={path}" for path in bound]
    unit = "/etc/systemd/system/mpswatch.service"
    done = subprocess.run(
        [
            *("systemd-nspawn", "-q", "-D", "/", "--volatile=yes", "--register=no", "--keep-unit", "--boot"),
            *("--console=pipe", f"--bind={directory}:/t", *binds),
            f"--bind-ro={ROOT}/systemd/mpswatch.service:{unit}",
            f"--bind-ro={directory}/overrides.conf:{unit}.d/50-test.conf",
            f"--bind-ro={ROOT}/systemd/mpswatch.sysusers:/etc/sysusers.d/mpswatch.conf",
            "systemd.condition-first-boot=no",
            "systemd.firstboot=no",
            f"systemd.machine_id={uuid.uuid4().hex}",
            "systemd.run=/t/script.sh",
        ],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
    )
    results = directory / "results.jsonl"
    log = done.stdout[-3000:] + done.stderr[-3000:]
    for name in ("script.log", "journal.txt"):
        if (directory / name).exists():
            log += f"\n--- {name}\n" + (directory / name).read_text(errors="replace")[-6000:]
    if not results.exists():
        pytest.fail(log)
    outcomes = {outcome["way"]: outcome for outcome in map(json.loads, results.read_text().splitlines())}
    failed = [outcome for outcome in outcomes.values() if "error" in outcome]
    if failed:
        pytest.fail(f"{failed}\n{log}")
    unit_properties = (directory / "unit.txt").read_text()
    shutil.rmtree(directory)
    return outcomes, unit_properties


@pytest.fixture
def outcomes(boot):
    return boot[0]


@pytest.mark.parametrize("way", SURVIVED)
def test_no_client_is_ended_with_work_in_flight_and_no_neighbour_dies(outcomes, way):
    outcome = outcomes[way]
    assert outcome["pieces"] > 20, "it was in the middle of a cell"
    assert (outcome["unsafe_ends"], outcome["harmed_neighbours"]) == (0, 0)
    assert outcome["services"] == 2, "both services are still there"


def test_what_cannot_be_survived_is_seen_here_too(outcomes):
    outcome = outcomes["kill_unit_dead"]
    assert outcome["unsafe_ends"] == 1, "so a harmed neighbour in the other ways would have been seen"


def test_the_unit_rests_after_a_stop_and_comes_back_after_the_rest(outcomes):
    assert outcomes["stop"]["state"] == "inactive"
    assert outcomes["kill_unit"]["state"] == "inactive", "a stop that was asked for, by another road"
    assert outcomes["restart"]["state"] == "active"
    for way in ("kill_main", "freeze"):
        assert outcomes[way]["restarts"] >= 1, way


def test_the_watchdog_found_the_frozen_daemon(outcomes):
    assert outcomes["freeze"]["client_outlived_by"] > 0


def test_the_user_that_sysusers_made_has_the_state_directory(boot):
    _, properties = boot
    assert "User=mpswatch" in properties
    assert "StateDirectory=mpswatch" in properties
