"""An archive of many runs, made from one recorded on an H200: python tests/history/many.py DIRECTORY [RUNS] [GPUS].

Run by run the numbers wander as on a real GPU; everything else is the recorded document. Prints what it made.
"""

from __future__ import annotations

import random
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from mpswatch.archive import read_run
from mpswatch.archive.names import name_of
from mpswatch.documents import to_json

RECORDED = Path(__file__).parents[1] / "recordings" / "h200-580"
FIRST = datetime(2016, 1, 1, tzinfo=UTC)


def make(directory: Path, *, runs: int, gpus: int, seed: int = 1) -> None:
    """Write `runs` runs of hourly sweeps, dealt out to `gpus` GPUs; not durably, because nobody else looks."""
    chance = random.Random(seed)
    recorded = read_run(sorted(RECORDED.glob("*_quick_*.json"))[0])
    assert recorded.gpu is not None
    (directory / "runs").mkdir(parents=True, exist_ok=True)
    replace = msgspec.structs.replace
    for number in range(runs):
        at = FIRST + timedelta(hours=number // gpus)
        which = number % gpus
        wander = chance.gauss(1.0, 0.005)
        document = replace(
            recorded,
            run_id=f"{at:%Y%m%dT%H%M%SZ}-{which:04x}",
            started_at=at,
            finished_at=at + timedelta(seconds=6),
            recorded_at=at + timedelta(seconds=6),
            gpu=replace(recorded.gpu, uuid=f"GPU-{which:08x}-6f6a-118e-0687-27666ec344e1", index=which),
            cells=tuple(replace(cell, tflops=(cell.tflops or 0) * wander) for cell in recorded.cells),
        )
        path = directory / "runs" / name_of(document, compressed=False)
        path.write_bytes(to_json(document, indent=2))


if __name__ == "__main__":
    place, runs, gpus = Path(sys.argv[1]), int((sys.argv[2:] or ["100000"])[0]), int((sys.argv[3:] or ["4"])[0])
    begun = time.monotonic()
    make(place, runs=runs, gpus=gpus)
    print(f"{runs} runs of {gpus} GPUs in {time.monotonic() - begun:.0f} s")
