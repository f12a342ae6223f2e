"""The disk is full, read-only or gone under a whole daemon, a run is cut, and the wall clock is stepped."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("end_to_end_watched_disk", HERE / "watched.py")
_watched = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _watched
_spec.loader.exec_module(_watched)

DAY = 86400.0
fault = pytest.mark.fault


@pytest.fixture(scope="module")
def stage():
    """A daemon whose archive is a file system of its own, of 1 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    with _watched.Stage(sweep={"enabled": False, "caps": [100]}) as stage:
        stage.daemon.finish()
        disk = stage.folder / "disk"
        disk.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "mpswatch-test", disk], check=False)
        if mounted.returncode != 0:
            pytest.skip("nothing can be mounted here")
        stage.sections = {**stage.sections, "archive": {"directory": str(disk)}}
        stage.daemon = stage.start(**stage.sections)
        yield stage
        stage.daemon.finish()
        subprocess.run(["umount", disk], check=True)


@pytest.fixture
def watched(stage):
    _watched.until(stage.well)
    return _watched.Watched(stage.daemon, stage.stack)


def sweep_is_published_and_not_kept(watched, words, remedy):
    """The number is published, that it is not kept is said everywhere, and once there is room it is kept after all."""
    totals = ("archive_write_failures_total", "archive_writes_total", "archive_last_success_timestamp_seconds")
    failures, written, kept_at = (watched.value(name) for name in totals)
    sweeps = watched.value("sweeps_total", outcome="complete") or 0
    watched.daemon.signal(signal.SIGUSR1)
    watched.until(lambda: watched.value("archive_write_failures_total") > failures, 20.0)
    watched.says(
        metrics={
            'sweeps_total{outcome="complete"}': sweeps + 1,
            'cap_tflops{cap="100"}': ...,
            "archive_writes_total": written,
            "archive_last_success_timestamp_seconds": kept_at,
            'sink_failures_total{sink="archive"}': ...,
        },
        page=["Archive cannot write", words],
        document={"sweeps": [{"outcome": "complete", "document": {"cells": [{"tflops": ...}]}}]},
        log=[{"event": "not recorded", "sink": "archive", "detail": f".simulated.json: {words}", "remedy": remedy}],
    )
    assert watched.value("sink_failures_total", sink="archive") >= 1
    assert watched.daemon.get("/-/healthy").status_code == 200
    return written


def kept_after_all(watched, written):
    watched.until(lambda: watched.value("archive_writes_total") == written + 1, 20.0)
    run = watched.daemon.runs()[-1]
    assert run["tflops_by_cap"]["value"]["100"] == watched.value("cap_tflops", cap="100")


@fault("archive full")
def test_the_archive_is_full(watched, stage):
    filler = watched.daemon.archive / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"0" * 4096):
            pass
    written = sweep_is_published_and_not_kept(watched, "No space left", "free space")
    filler.unlink()
    kept_after_all(watched, written)


@fault("archive read-only")
def test_the_archive_is_read_only(watched, stage):
    subprocess.run(["mount", "-o", "remount,ro", watched.daemon.archive], check=True)
    written = sweep_is_published_and_not_kept(watched, "Read-only file system", "remount")
    subprocess.run(["mount", "-o", "remount,rw", watched.daemon.archive], check=True)
    kept_after_all(watched, written)


@fault("archive directory removed")
def test_the_archives_directory_is_removed(watched, stage):
    assert watched.value("archive_bytes") is not None
    shutil.rmtree(watched.daemon.archive / "runs")
    watched.until(lambda: watched.value("archive_bytes") is None)  # the old size would be a lie
    written = sweep_is_published_and_not_kept(watched, "No such file or directory", "create the directory again")
    (watched.daemon.archive / "runs").mkdir()
    kept_after_all(watched, written)
    watched.until(lambda: watched.value("archive_bytes") is not None)


@fault("archive file cut at any byte")
def test_a_run_that_was_cut_is_named_and_the_one_before_it_is_shown(watched, stage):
    watched.daemon.signal(signal.SIGUSR1)
    runs = watched.daemon.archive / "runs"
    before = set(runs.iterdir())
    watched.until(lambda: len(set(runs.glob("*.json")) - before) == 1, 20.0)
    (cut,) = set(runs.glob("*.json")) - before
    assert watched.daemon.stop() == 0
    cut.write_bytes(cut.read_bytes()[:1000])
    stage.daemon = stage.start(**stage.sections)
    again = _watched.Watched(stage.daemon)
    (kept,) = map(_watched.run_of, before)
    again.says(
        metrics={'cap_tflops{cap="100"}': kept["tflops_by_cap"]["value"]["100"]},
        page=[f"run {kept['run_id']} , finished"],
        document={"sweeps": [{"document": {"run_id": kept["run_id"]}}]},
        log=[{"event": "the archive", "detail": str(cut)}],
        seconds=20.0,
    )


@pytest.fixture(scope="module")
def clock(tmp_path_factory):
    """A library that steps the wall clock of whoever preloads it, and the file that says by how much."""
    folder = tmp_path_factory.mktemp("clock")
    library = folder / "stepped_clock.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, HERE / "stepped_clock.c"], check=True)
    step = folder / "step"
    step.write_text("0")
    return {"LD_PRELOAD": str(library), "STEPPED_CLOCK": str(step)}, step


@fault("clock stepped back and forth")
def test_a_clock_that_is_stepped_makes_nothing_stale_and_no_sweep(stage, clock):
    environment, step = clock
    step.write_text("0")
    stage.daemon.finish()
    shutil.rmtree(stage.folder / "disk" / "runs")
    (stage.folder / "disk" / "journal.jsonl").unlink()
    # A step is noticed within a second: the polls of 0.3 s that other tests have would be stale by then.
    sections = {"poll": {"interval": "1s"}, "sweep": {"caps": [100], "interval": "1h"}}
    stage.daemon = stage.start(environment, **{**stage.sections, **sections})
    watched = _watched.Watched(stage.daemon)
    watched.until(lambda: watched.value("sweeps_total", outcome="complete") == 1, 20.0)

    def last():
        return watched.value("poll_last_success_timestamp_seconds", source="mps")

    was = 0.0
    for seconds in (DAY, -DAY):
        watched = _watched.Watched(stage.daemon)
        step.write_text(f"{seconds:.0f}")
        watched.until(lambda there=seconds: abs(last() - time.time() - there) < 60)
        then = datetime.fromtimestamp(time.time() + seconds, UTC)
        watched.says(
            metrics={'managed_clients{daemon="stack"}': 2, 'poll_success{source="mps"}': 1},
            page=[f"polled {then:%Y-%m-%d} "],
            document={"poll": {"finished_at": lambda at, then=then: at.startswith(f"{then:%Y-%m-%d}T")}},
            log=[{"event": "the clock was stepped"}],
        )
        (line,) = watched.said("the clock was stepped")
        assert abs(line["seconds"] - (seconds - was)) < 5
        was = seconds
        for _ in range(4):
            before = last()
            watched.until(lambda then=before: last() > then)
            assert watched.value("managed_clients", daemon="stack") == 2
            assert watched.value("cap_tflops", cap="100") > 0
    assert len(watched.daemon.events("sweep_started")) == 1
    assert watched.value("sweeps_total", outcome="complete") == 1
    assert not watched.said("what was published has gone stale")
    watched.daemon.signal(signal.SIGUSR1)  # a run "before" the last one is the newest all the same
    watched.until(lambda: watched.value("sweeps_total", outcome="complete") == 2, 20.0)
    assert watched.value("sweep_last_run_timestamp_seconds") < time.time() - DAY / 2
