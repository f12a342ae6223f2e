"""The daemon on a rehearsal, with a remote target that is away at first: seen in the metrics, then caught up with."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

CONFIG = """
poll: {interval: 1s}
mps: {deadline: 2s}
gpu: {deadline: 2s}
sweep: {interval: 1h, jitter: 0, settle: 0, caps: [50], size: 64, iters: 20}
archive:
  keep_age: 1s
  remote: {url: s3://fleet/mpswatch, interval: 1s, deadline: 10s}
"""


@pytest.fixture
def daemon(tmp_path, absent_s3):
    (tmp_path / "mpswatch.yml").write_text(CONFIG)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = (tmp_path / "log").open("w")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "mpswatch", "demo", "--config.file", str(tmp_path / "mpswatch.yml")),
            *("--archive", str(tmp_path / "archive"), f"--web.listen-address=127.0.0.1:{port}"),
        ],
        env={**os.environ, **absent_s3.environment},
        stdout=subprocess.DEVNULL,
        stderr=log,
        start_new_session=True,
    )
    log.close()
    yield port, tmp_path
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


def value(port: int, name: str) -> float | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    except OSError:  # it does not serve yet
        return None
    finally:
        connection.close()
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else None


def wait_for(what, seconds: float = 40.0):
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.2)


def test_runs_wait_here_while_the_target_is_away_and_go_there_when_it_is_back(daemon, absent_s3):
    port, directory = daemon
    wait_for(lambda: value(port, "mpswatch_archive_remote_missing_runs") == 1)
    assert value(port, "mpswatch_archive_remote_failures_total") >= 1
    assert value(port, "mpswatch_archive_remote_last_success_timestamp_seconds") is None
    (run,) = (directory / "archive" / "runs").iterdir()

    absent_s3.start()
    wait_for(lambda: value(port, "mpswatch_archive_remote_missing_runs") == 0)
    assert value(port, "mpswatch_archive_remote_last_success_timestamp_seconds") > 0
    (key,) = absent_s3.objects()
    assert Path(key).name == run.name
    assert key.startswith("mpswatch/simulated/")
    log = (directory / "log").read_text()
    assert log.count("runs are not copied to the remote target") >= 1
