"""What the unit starts in the booted test instead of `mpswatch run`: the same daemon, watching a rehearsal.

`run` refuses a rehearsal stack on purpose, and `demo` brings one of its own along, which would live in the unit.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mpswatch.config import Config, load
from mpswatch.daemon.run import run


def main(stack: Path) -> None:
    def reread() -> Config:
        return load(
            None,
            {
                "daemons": [{"name": "rehearsal", "pipe_directory": str(stack / "default" / "pipe")}],
                "mps.control_program": str(stack / "bin" / "nvidia-cuda-mps-control"),
                "gpu.source": "nvidia-smi",
                "gpu.nvidia_smi": str(stack / "bin" / "nvidia-smi"),
                "poll.interval": "1s",
                "mps.deadline": "2s",
                "gpu.deadline": "2s",
                "sweep.interval": "1h",
                "sweep.jitter": 0,
                "sweep.settle": 0,
                "sweep.size": 256,
                "sweep.iters": 5000,
                "web.listen_address": "127.0.0.1:10677",
            },
        )

    os._exit(run(reread(), reread=reread, simulated=True))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
