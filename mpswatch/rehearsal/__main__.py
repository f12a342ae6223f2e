"""A stack to be driven from outside (containers, units, a terminal).

python -m mpswatch.rehearsal run DIR [--demo] [--gpus N]     until SIGTERM, Ctrl-C or end of its parent
python -m mpswatch.rehearsal tell DIR ORDER [KEY=VALUE …]    VALUE is JSON where it can be, else a string
python -m mpswatch.rehearsal status DIR
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from mpswatch.rehearsal import programs, state
from mpswatch.rehearsal.demo import demo_stack
from mpswatch.rehearsal.director import Director
from mpswatch.rehearsal.layout import Layout, RehearsalError, claim
from mpswatch.rehearsal.orders import obey
from mpswatch.rehearsal.stack import Stack
from mpswatch.rehearsal.tell import tell

USAGE = 2


def main(arguments: list[str]) -> int:
    """Exit status: 0 done, 1 the stack refused, 2 not understood."""
    match arguments:
        case ["direct", directory, gpus]:
            return direct(Path(directory), int(gpus))
        case ["run", directory, *options]:
            return run(Path(directory), options)
        case ["tell", directory, order, *details]:
            return say(Path(directory), order, details)
        case ["status", directory]:
            return say(Path(directory), "status", [])
        case _:
            sys.stderr.write(__doc__ or "")
            return USAGE


def direct(directory: Path, gpus: int) -> int:
    """The director's process; stack.py starts it, and holds its standard input."""
    layout = Layout(directory)
    claim(layout)
    layout.directory.chmod(0o755)  # clients of other users come through
    state.write(layout.mark, {"director": os.getpid(), "rehearsal": True})
    programs.write(layout, layout.daemon("default").pipe)
    director = Director(layout, devices=gpus)

    def ready() -> None:
        os.write(1, b"ready\n")
        os.dup2(2, 1)

    try:
        director.run(obey, ready)
    finally:
        director.leave()
    return 0


def run(directory: Path, options: list[str]) -> int:
    """A stack in the foreground."""
    waited_for = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    gpus = int(options[options.index("--gpus") + 1]) if "--gpus" in options else 1
    try:
        with demo_stack(directory) if "--demo" in options else Stack(directory, gpus=gpus) as stack:
            sys.stdout.write(json.dumps(facts(stack)) + "\n")
            sys.stdout.flush()
            signal.sigwait(waited_for)
    except RehearsalError as error:
        return complain(error)
    return 0


def facts(stack: Stack) -> dict[str, str]:
    """What a user of the stack has to know: the first line that `run` prints."""
    return {
        "pipe_directory": str(stack.pipe_directory),
        "log_directory": str(stack.log_directory),
        "control_program": str(stack.control_program),
        "nvidia_smi": str(stack.nvidia_smi),
    }


def say(directory: Path, order: str, details: list[str]) -> int:
    """One order; its reply as JSON."""
    try:
        reply = tell(directory, order, **dict(detail(word) for word in details))
    except RehearsalError as error:
        return complain(error)
    sys.stdout.write(json.dumps(reply) + "\n")
    return 0


def detail(word: str) -> tuple[str, Any]:
    key, _, value = word.partition("=")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def complain(error: RehearsalError) -> int:
    sys.stderr.write(f"{error.detail}\n" + (f"{error.remedy}\n" if error.remedy else ""))
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
