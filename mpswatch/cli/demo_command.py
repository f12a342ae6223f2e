"""`mpswatch demo`."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mpswatch.cli.options import AS_JSON, DAEMON_OPTIONS, Source, configured

if TYPE_CHECKING:
    from mpswatch.config import Config
    from mpswatch.daemon.exit import Exit
    from mpswatch.daemon.sweeps import Outcome
    from mpswatch.rehearsal.stack import Stack

BASE = {
    "poll.interval": "2s",
    "mps.deadline": "4s",
    "gpu.deadline": "4s",
    "sweep.interval": "1m",
    "sweep.jitter": "0s",
    "sweep.settle": "0s",
    "sweep.size": 128,
    "sweep.iters": 200,
    "log.level": "warning",
}
"""What a demonstration has instead of the defaults; a configuration file goes before it."""


@click.command("demo")
@click.option("--once", is_flag=True, help="One poll and one sweep, then leave.")
@click.option("--stack", type=click.Path(path_type=Path), metavar="DIR", help="Where the rehearsal stack is made.")
@configured(*DAEMON_OPTIONS, AS_JSON)
def command(*, source: Source, once: bool, stack: Path | None, as_json: bool) -> None:
    """Run the daemon on an embedded rehearsal stack: no GPU needed, and every document says `simulated`.

    Takes every option of `run`. The stack has two managed services and foreign tenants that come and go; the
    measuring client is the real one, computing on the CPU. The first sweep is made at once. The stack can be
    told things, in the directory that is printed or given: python -m mpswatch.rehearsal tell DIR hang
    """
    from mpswatch.rehearsal.demo import demo_stack  # noqa: PLC0415 - loads after the arguments are right

    if as_json and not once:
        raise click.UsageError("--json goes with --once: the running daemon has /api/v1/latest")
    directory = stack or Path(tempfile.mkdtemp(prefix="mpswatch-demo-"))
    reread = _reader(source, directory)
    try:
        reread()  # faults are said before the stack starts
        with demo_stack(directory) as running:
            _wire(source, running)
            code = _once(reread(), as_json=as_json) if once else _serve(reread, directory)
    finally:
        if stack is None:
            shutil.rmtree(directory, ignore_errors=True)  # as the stack has done by itself, where it had begun
    os._exit(code)


def _reader(source: Source, directory: Path) -> Callable[[], Config]:
    """The archive lies in the stack's directory, which the stack removes, also where we have to leave at once."""
    base = {**BASE, "archive.directory": str(directory / "archive")}
    return lambda: source.load(base)


def _wire(source: Source, stack: Stack) -> None:
    """The stack's addresses, whatever a configuration file says: a rehearsal never looks at a real stack."""
    source.overrides |= {
        "daemons": [
            {
                "name": "rehearsal",
                "pipe_directory": str(stack.pipe_directory),
                "log_directory": str(stack.log_directory),
            }
        ],
        "mps.control_program": str(stack.control_program),
        "gpu.source": "nvidia-smi",
        "gpu.nvidia_smi": str(stack.nvidia_smi),
    }


def _once(config: Config, *, as_json: bool) -> Exit:
    from mpswatch.cli.sweeping import sweep_now  # noqa: PLC0415 - rich is for those who draw

    return sweep_now(config, simulated=True, trigger="demo", as_json=as_json)


def _serve(reread: Callable[[], Config], directory: Path) -> Exit:
    from mpswatch.cli.live import Live  # noqa: PLC0415 - only a demonstration that stays shows itself
    from mpswatch.daemon.run import run  # noqa: PLC0415

    config = reread()

    def listening(url: str) -> None:
        click.echo(f"a rehearsal stack, no GPU: {url} and {url}metrics; archive {config.archive.directory}")
        click.echo(f"Ctrl-C stops it; it can be told things: python -m mpswatch.rehearsal tell {directory} hang")

    return run(
        config,
        reread=reread,
        simulated=True,
        first_sweep_at_once=True,
        progress=Live(),
        after_sweep=_show,
        listening=listening,
    )


def _show(outcomes: Sequence[Outcome]) -> None:
    from mpswatch.cli import show  # noqa: PLC0415 - loaded with the first table
    from mpswatch.documents import SweepDocument  # noqa: PLC0415

    out = show.console()
    for outcome in outcomes:
        if isinstance(outcome, SweepDocument):
            show.print_sweep(outcome, out)
