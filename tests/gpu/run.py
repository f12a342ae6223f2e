"""The GPU suite: `make gpu-test ARGS='…'`, or `python3 tests/gpu/run.py …` with the interpreter that has torch.

    run.py                        the tests marked `gpu` in this folder: smoke, exposure, survival of the client and of
                                  the daemon, about 12 minutes
    run.py smoke [options]        one sweep beside a neighbour, everything printed (smoke.py --help)
    run.py exposure [options]     how long work is in flight unwatched, alone and beside neighbours (exposure.py --help)
    run.py survival [options]     the ways that end client or launcher (survival.py --help); long form: --seconds 3000
    run.py daemon_ways [options]  the ways that end mpswatch itself (daemon_ways.py --help); long form: --seconds 3000
    run.py -k NAME                pytest's selection among the tests marked `gpu`

It installs nothing. It refuses on a GPU that has any other process, because it starts neighbours that may die.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

# Import name -> the wheel that brings it.
NEEDED = {
    "torch": "torch",
    "numpy": "numpy",
    "msgspec": "msgspec",
    "pytest": "pytest",
    "pytest_timeout": "pytest-timeout",
}
NEEDED_BY_THE_DAEMON = {
    "apscheduler": "apscheduler",
    "tzlocal": "tzlocal",
    "bcrypt": "bcrypt",
    "click": "click",
    "h11": "h11",
    "pynvml": "nvidia-ml-py",
    "prometheus_client": "prometheus-client",
    "yaml": "PyYAML",
    "rich": "rich",
    "starlette": "starlette",
    "structlog": "structlog",
    "uvicorn": "uvicorn",
}


def absent(names: dict[str, str]) -> list[str]:
    return [wheel for name, wheel in names.items() if importlib.util.find_spec(name) is None]


def main() -> int:
    arguments = sys.argv[1:]
    if arguments[:1] in (["-h"], ["--help"]):
        print(__doc__)
        return 0
    if wheels := absent(NEEDED):
        print(
            f"this interpreter ({sys.executable}) lacks: {' '.join(wheels)}; nothing is installed here", file=sys.stderr
        )
        return 2
    if arguments[:1] and arguments[0] in ("smoke", "exposure", "survival", "daemon_ways"):
        return subprocess.call([sys.executable, str(HERE / f"{arguments[0]}.py"), *arguments[1:]])

    from stacks import missing

    if lacks := missing():
        print("the GPU suite cannot run:\n  " + "\n  ".join(lacks), file=sys.stderr)
        return 2
    if wheels := absent(NEEDED_BY_THE_DAEMON):
        print(f"without {' '.join(wheels)} the tests of the whole daemon are left out", file=sys.stderr)
    pytest = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "gpu",
        "-s",
        "-W",
        "default",
        "-p",
        "no:cacheprovider",
        str(HERE),
        *arguments,
    ]
    return subprocess.call(pytest, cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main())
