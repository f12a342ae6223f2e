"""Figures for docs/measurements: python tests/history/measure_index.py DIRECTORY (made by many.py).

Each line: what, seconds of wall clock, seconds of CPU. With pyarrow installed Parquet is measured too.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpswatch.archive import Archive, read_run
from mpswatch.history import open_index
from mpswatch.history.facts import facts_of


def timed(what: str, do: Callable[[], Any]) -> Any:
    wall, cpu = time.perf_counter(), time.process_time()
    found = do()
    print(f"{what}: {time.perf_counter() - wall:.2f} s, {time.process_time() - cpu:.2f} s CPU", flush=True)
    return found


def main(directory: Path) -> None:
    archive = Archive(directory)
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    timed("build the index", lambda: open_index(archive).close())
    size = (directory / "index.sqlite").stat().st_size
    print(f"index: {size / 2**20:.0f} MiB, peak of this process {_peak():.0f} MiB")
    timed("open it, nothing new", lambda: open_index(archive).close())
    with open_index(archive) as index:
        series, count, _ = index.series()[0]
        timed(f"history of one GPU, {count} runs", lambda: sum(1 for _ in index.runs(series)))
        timed("its newest 200", lambda: sum(1 for _ in index.runs(series, newest=200)))
    os.utime(archive.runs)  # as if a run had come
    timed("open it after the directory changed", lambda: open_index(archive).close())
    timed("look at every file", lambda: open_index(archive, every_file=True).close())
    timed("list the newest 50 by name (archive ls)", lambda: list(itertools.islice(archive.entries(), 50)))
    paths = [entry.path for entry in archive.entries() if entry.gpu == series.gpu_uuid[:12]][:2000]
    timed(f"plain reading of {len(paths)} runs", lambda: sum(1 for path in paths if facts_of(read_run(path))))
    if importlib.util.find_spec("pyarrow"):
        _parquet(archive, series, directory / "measure.parquet")
    print(f"peak of this process {_peak():.0f} MiB")


def _parquet(archive: Archive, series: Any, path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    columns: dict[str, list[Any]] = {name: [] for name in ("gpu", "run_id", "started", "cap", "tflops", "foreign")}
    with open_index(archive) as index:
        for one, _, _ in index.series():
            for run in index.runs(one):
                for cap in run.caps:
                    row = (one.gpu_uuid, run.run_id, run.started, cap.cap, cap.tflops, list(cap.foreign or ()))
                    for name, value in zip(columns, row, strict=True):
                        columns[name].append(value)
    table = pa.table(columns)
    timed("parquet: write all of it", lambda: parquet.write_table(table, path, row_group_size=50_000))
    print(f"parquet: {path.stat().st_size / 2**20:.0f} MiB")
    wanted = [("gpu", "==", series.gpu_uuid)]
    timed("parquet: history of one GPU", lambda: parquet.read_table(path, filters=wanted).to_pylist())
    path.unlink()


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main(Path(sys.argv[1]))
