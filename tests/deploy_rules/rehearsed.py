"""The daemon on a rehearsal stack with two services and nobody foreign.

`python rehearsed.py DIRECTORY PORT [SWEEP_INTERVAL]`: as `mpswatch demo`, but tenants come
only when the test tells the stack in DIRECTORY/stack.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mpswatch.config import load
from mpswatch.daemon.run import run
from mpswatch.rehearsal.stack import Stack

SETTINGS = {
    "host": "rehearsed",
    "poll.interval": "1s",
    "mps.deadline": "2s",
    "gpu.source": "nvidia-smi",
    "gpu.deadline": "2s",
    "sweep.jitter": "0s",
    "sweep.settle": "0s",
    "sweep.size": 96,
    "sweep.iters": 100,
    "log.level": "warning",
    "log.format": "text",
}


def main(directory: Path, port: int, sweep_interval: str) -> None:
    with Stack(directory / "stack") as stack:
        stack.add_service("chat", memory_mib=636)
        stack.add_service("embedding", memory_mib=412)
        daemon = {
            "name": "rehearsal",
            "pipe_directory": str(stack.pipe_directory),
            "log_directory": str(stack.log_directory),
        }
        settings = {
            **SETTINGS,
            "daemons": [daemon],
            "sweep.interval": sweep_interval,
            "mps.control_program": str(stack.control_program),
            "gpu.nvidia_smi": str(stack.nvidia_smi),
            "archive.directory": str(directory / "archive"),
            "web.listen_address": f"127.0.0.1:{port}",
        }
        code = run(load(None, settings), reread=lambda: load(None, settings), simulated=True, first_sweep_at_once=True)
    os._exit(code)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "1m")
