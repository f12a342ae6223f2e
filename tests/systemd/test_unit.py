"""What is written in the unit: accepted by systemd, tight enough, and without a directive that ends a client."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from click.testing import CliRunner

from mpswatch.cli.group import mpswatch_command
from mpswatch.config import load
from mpswatch.daemon.exit import Exit

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "systemd"
UNIT = FOLDER / "mpswatch.service"

MUST_STAY_OFF = {
    *("MemoryMax", "MemoryHigh", "TasksMax", "LimitCPU", "RuntimeMaxSec", "LimitAS", "LimitDATA", "MemoryLimit"),
    *("PrivateTmp", "PrivateDevices", "PrivateIPC", "RemoveIPC", "PrivateUsers", "DynamicUser", "PrivatePIDs"),
    *("ProtectProc", "ProcSubset", "MemoryDenyWriteExecute", "ProtectClock", "PrivateNetwork", "IPAddressDeny"),
}


def directives(path: Path = UNIT) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for line in path.read_text().splitlines():
        if "=" in line and not line.startswith(("#", "[")):
            key, _, value = line.partition("=")
            found[key].append(value)
    return found


@pytest.fixture
def startable(tmp_path):
    """The unit with a program that is there: systemd checks that too."""
    unit = tmp_path / "mpswatch.service"
    program = directives()["ExecStart"][0].split()[0]
    unit.write_text(UNIT.read_text().replace(f"ExecStart={program}", "ExecStart=/bin/true"))
    drop_in = tmp_path / "mpswatch.service.d"
    drop_in.mkdir()
    for path in (FOLDER / "mpswatch.service.d").iterdir():
        (drop_in / path.name).write_text(path.read_text())
    return unit


@pytest.mark.part("systemd-analyze")
def test_systemd_finds_nothing_to_say(startable):
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=yes", startable],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.part("systemd-analyze")
def test_systemd_would_have_found_an_unknown_directive(startable):
    startable.write_text(startable.read_text().replace("KillMode=", "KilMode="))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=yes", startable],
        check=False,
        capture_output=True,
        text=True,
    )
    assert "KilMode" in done.stderr


@pytest.mark.part("systemd-analyze")
def test_its_exposure_is_at_most_two_and_a_half(startable):
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=25", startable],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-300:]


@pytest.mark.parametrize(
    ("directive", "value"),
    [
        ("Type", "notify"),
        ("NotifyAccess", "main"),
        ("KillMode", "process"),
        ("OOMPolicy", "continue"),
        ("SystemCallErrorNumber", "EPERM"),
        ("NoNewPrivileges", "yes"),
        ("CapabilityBoundingSet", ""),
        ("DevicePolicy", "closed"),
    ],
)
def test_it_says(directive, value):
    assert directives()[directive] == [value]


def test_what_must_stay_off_is_not_there_and_is_explained():
    assert not MUST_STAY_OFF & set(directives())
    explained = UNIT.read_text().partition("what must stay off")[2]
    for directive in MUST_STAY_OFF - {"MemoryLimit"}:
        assert directive in explained, directive


def test_it_has_a_watchdog():
    assert directives()["WatchdogSec"] == ["60s"]


def test_devices_are_the_drivers_classes():
    assert {value.split()[0] for value in directives()["DeviceAllow"]} == {
        "char-nvidia", "char-nvidiactl", "char-nvidia-uvm", "char-nvidia-caps",
    }  # fmt: skip


def test_stopping_may_take_longer_than_a_cell():
    (stop,) = directives()["TimeoutStopSec"]
    assert float(stop.removesuffix("s")) >= 2 * load(None, {}, environ={}).sweep.cell_deadline


def test_it_is_not_started_again_where_that_would_not_help():
    codes = {int(code) for code in directives()["RestartPreventExitStatus"][0].split()}
    assert codes == {Exit.USAGE, Exit.REHEARSAL}


def test_flags_and_variables_of_the_environment_file_exist():
    run_help = CliRunner().invoke(mpswatch_command, ["run", "--help"]).output
    text = (FOLDER / "mpswatch.env").read_text()
    flags = directives(FOLDER / "mpswatch.env")["MPSWATCH_OPTIONS"][0].split()
    assert flags == ["--web.listen-address=:10677"]
    assert "--web.listen-address" in run_help
    assert "--web.config.file" in run_help
    assert "MPSWATCH_CONFIG_FILE" in text
    assert (load(None, {"web.listen_address": ":10677"}, environ={})).web.listen_address[1] == 10677


def test_the_drop_in_changes_the_user_and_nothing_else():
    assert set(directives(FOLDER / "mpswatch.service.d" / "10-stack-user.conf")) == {"User", "Group"}


@pytest.mark.part("systemd-sysusers")
def test_sysusers_makes_the_units_user(tmp_path):
    (tmp_path / "etc").mkdir()
    done = subprocess.run(
        ["systemd-sysusers", f"--root={tmp_path}", FOLDER / "mpswatch.sysusers"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    name, _, _, _, _, home, shell = next(
        line for line in (tmp_path / "etc" / "passwd").read_text().splitlines() if line.startswith("mpswatch:")
    ).split(":")
    assert [name] == directives()["User"]
    assert (home, shell) == ("/var/lib/mpswatch", "/usr/sbin/nologin")
