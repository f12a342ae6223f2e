"""The demonstration, and what keeps it apart from anything that was measured."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from mpswatch.archive import Archive
from mpswatch.daemon.exit import Exit
from mpswatch.documents import SweepDocument, from_json

REFERENCE = Path(__file__).parents[1] / "reference" / "mps-cap-sweep.v1.json"


@pytest.fixture
def mpswatch():
    """Run a command."""

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "mpswatch", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    return run


def test_once_makes_one_poll_and_one_sweep_and_prints_table_picture_and_file(mpswatch, short_path):
    done = mpswatch("demo", "--once", "--archive", short_path / "archive")
    assert done.returncode == 0, done.stderr
    (path,) = (short_path / "archive" / "runs").iterdir()
    assert f"written: {path}" in done.stdout
    assert "SIMULATED" in done.stdout
    assert "██" in done.stdout
    for cap in ("100", "75", "50", "25", "10"):
        assert f"{cap} % " in done.stdout
    run = from_json(path.read_bytes(), SweepDocument)
    assert run.simulated
    assert run.complete_sweep
    assert all(cell.tflops for cell in run.cells)
    assert run.managed_clients_before.value is not None
    assert len(run.managed_clients_before.value) == 2
    assert mpswatch("archive", "validate", path).returncode == 0


def test_json_is_the_document_and_nothing_else_on_standard_output(mpswatch, short_path):
    done = mpswatch("demo", "--once", "--json", "--archive", short_path / "archive")
    assert done.returncode == 0, done.stderr
    (path,) = (short_path / "archive" / "runs").iterdir()
    assert json.loads(done.stdout) == json.loads(path.read_text())


def test_a_rehearsal_does_not_write_beside_measured_runs(mpswatch, short_path):
    archive = Archive(short_path / "archive")
    archive.prepare()
    measured = archive.write(from_json(REFERENCE.read_bytes(), SweepDocument))
    for arguments in (["--once"], ["--web.listen-address", "127.0.0.1:0"]):
        done = mpswatch("demo", *arguments, "--archive", short_path / "archive")
        assert done.returncode == Exit.REHEARSAL
        assert "measured" in done.stderr
        assert "--archive" in done.stderr
    assert list((short_path / "archive" / "runs").iterdir()) == [measured]


def test_a_daemon_for_real_stacks_refuses_a_rehearsal(command, short_path):
    done = command("run")
    assert done.returncode == Exit.REHEARSAL
    assert "rehearsal" in done.stderr
    assert "mpswatch demo" in done.stderr
    assert not (short_path / "archive").exists()


def test_measured_runs_are_not_written_beside_a_rehearsals(mpswatch, command, short_path):
    assert command("sweep").returncode == 0
    empty = short_path / "no-stack"
    empty.mkdir()
    file = short_path / "real.yml"
    file.write_text(json.dumps({"daemons": [{"pipe_directory": str(empty)}], "web": {"listen_address": "127.0.0.1:0"}}))
    done = mpswatch("run", "--config.file", file, "--archive", short_path / "archive")
    assert done.returncode == Exit.REHEARSAL


def test_the_demonstration_serves_sweeps_and_stops_with_everything_that_it_started(short_path, until):
    stack, log = short_path / "stack", short_path / "log"
    file = short_path / "demo.yml"
    file.write_text(json.dumps({"sweep": {"caps": [100, 25]}}))
    options = ["--archive", short_path / "archive", "--stack", stack, "--config.file", file]
    options += ["--web.listen-address", "127.0.0.1:0", "--log.level", "info", "--log.format", "json"]
    with log.open("wb") as out:
        demo = subprocess.Popen(
            [sys.executable, "-m", "mpswatch", "demo", *map(str, options)],
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:

        def address():
            assert demo.poll() is None, log.read_text()
            for line in log.read_text().splitlines():
                if '"serving"' in line:
                    return json.loads(line)["addresses"][0]
            return None

        url = f"http://{until(address)}"
        complete = 'mpswatch_sweeps_total{daemon="rehearsal"'
        until(lambda: [line for line in _scrape(url) if complete in line and line.endswith('outcome="complete"} 1')])
        assert "mpswatch_simulated 1" in _scrape(url)
        until(lambda: "██" in log.read_text())
        demo.send_signal(signal.SIGINT)
        assert demo.wait(30) == 0
    finally:
        if demo.poll() is None:
            demo.kill()
            demo.wait()
    assert not stack.exists()
    left = [pid for pid in Path("/proc").iterdir() if str(stack).encode() in _arguments(pid)]
    assert left == []


@pytest.mark.parametrize("options", [("--web.listen-address", "127.0.0.1:0"), ("--once",)])
def test_a_demonstration_that_is_told_twice_to_stop_leaves_at_once_and_no_folder_behind(short_path, until, options):
    folder = short_path / "tmp"
    folder.mkdir()
    demo = subprocess.Popen(
        [sys.executable, "-m", "mpswatch", "demo", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(folder)},
        start_new_session=True,
    )
    try:
        # once its own folder is there, signals are handled (that of the client's program comes last)
        until(lambda: list(folder.glob("mpswatch-demo-*/rehearsal.json")) and len(list(folder.iterdir())) == 2)
        time.sleep(0.5)
        demo.send_signal(signal.SIGINT)
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(30) in {Exit.LEFT_AT_ONCE, Exit.OK, Exit.INTERRUPTED}
        until(lambda: not list(folder.glob("mpswatch-demo-*")))
        assert not [path for path in folder.iterdir() if not any(path.iterdir())]
    finally:
        if demo.poll() is None:
            demo.kill()
            demo.wait()


def test_a_demonstration_that_is_killed_leaves_no_process_behind(short_path, until):
    stack = short_path / "stack"
    demo = subprocess.Popen(
        [sys.executable, "-m", "mpswatch", "demo", "--stack", str(stack), "--web.listen-address", "127.0.0.1:0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until((stack / "rehearsal.json").exists)
    time.sleep(0.5)
    demo.kill()
    demo.wait()
    until(lambda: not [pid for pid in Path("/proc").iterdir() if str(stack).encode() in _arguments(pid)])
    shutil.rmtree(stack, ignore_errors=True)


def _scrape(url):
    return httpx.get(f"{url}/metrics", timeout=10).text.splitlines()


def _arguments(pid):
    try:
        return (pid / "cmdline").read_bytes()
    except OSError:
        return b""
