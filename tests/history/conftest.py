from __future__ import annotations

import os
from datetime import timedelta

import pytest

from mpswatch.archive import Archive
from mpswatch.documents import Protocol, ReferenceTenant


@pytest.fixture(scope="session")
def many(shared_code):
    """The generator of large archives."""
    return shared_code("history/many.py")


@pytest.fixture
def archive(tmp_path):
    made = Archive(tmp_path / "archive")
    made.prepare()
    return made


@pytest.fixture
def run(facts):
    """Makes the run of hour `hour`, whose 50 % cell gives `tflops`, beside the named foreign processes."""

    def make(hour, tflops=436.0, *, foreign=(), gpu=None, failed=None, **changes):
        at = facts.NOON + timedelta(hours=hour)
        rows = tuple(ReferenceTenant(pid=900, used_memory_mb=5, process_name=name) for name in foreign)
        cells = tuple(
            facts.cell(cap, at, failed=(failed or {}).get(cap), tenants_present=rows)
            if cap != "50" or failed
            else facts.cell(cap, at, tflops=tflops, tenants_present=rows)
            for cap in facts.CURVE
        )
        more = {} if gpu is None else {"gpu": facts.gpu(gpu)}
        return facts.sweep(at, run_id=f"run-{hour:04}", cells=cells, **more, **changes)

    return make


@pytest.fixture
def written(archive, run):
    """Writes runs, and makes their files and directory look as old as files of an archive usually are."""

    def write(*runs):
        paths = [archive.write(one) for one in runs]
        settle(archive, paths)
        return paths

    return write


def settle(archive, paths=()):
    for path in (*paths, archive.runs):
        past = path.stat().st_mtime - 60
        os.utime(path, (past, past))


@pytest.fixture
def settled():
    return settle


@pytest.fixture
def protocol():
    def make(**changes):
        given = {
            "caps_percent": "100,75,50,25,10",
            "iters": 80,
            "matrix_size": 4096,
            "dtype": "fp16",
            "op": "matmul",
            "client_runtime": "process python as uid 1000",
        }
        return Protocol(**(given | changes))

    return make
