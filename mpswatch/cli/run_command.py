"""`mpswatch run`."""

from __future__ import annotations

import os

import click

from mpswatch.cli.options import DAEMON_OPTIONS, Source, configured


@click.command("run")
@configured(*DAEMON_OPTIONS)
def command(*, source: Source) -> None:
    """Watch: poll, sweep on schedule, export metrics, keep the archive.

    Opens with one verdict: sweeps will run, or will not because of something, with what to do about it.
    SIGHUP reloads the configuration (with a terminal attached it stops), SIGUSR1 sweeps now, SIGTERM and Ctrl-C
    stop in order; a second one leaves at once.
    """
    from mpswatch.daemon.run import run  # noqa: PLC0415 - the daemon's libraries load after the arguments are right

    code = run(source.load(), reread=source.load, simulated=False)
    os._exit(code)  # a hung NVML call must not hold the exit: all is flushed
