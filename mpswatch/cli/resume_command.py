"""`mpswatch resume`."""

from __future__ import annotations

from pathlib import Path

import click

from mpswatch.cli.options import ARCHIVE, Source, configured
from mpswatch.daemon.pause import resume


@click.command("resume")
@configured(ARCHIVE)
def command(*, source: Source) -> None:
    """Let sweeps run again."""
    directory = Path(source.load().archive.directory)
    click.echo("sweeps run again" if resume(directory) else "sweeps were not paused")
