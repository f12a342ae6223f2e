"""`mpswatch pause`."""

from __future__ import annotations

import getpass
from pathlib import Path

import click

from mpswatch.cli.options import ARCHIVE, Source, configured
from mpswatch.daemon.pause import pause


@click.command("pause")
@configured(ARCHIVE)
def command(*, source: Source) -> None:
    """Hold every sweep until `mpswatch resume`; survives a restart. A sweep that runs goes on to its end."""
    directory = Path(source.load().archive.directory)
    click.echo("sweeps are paused" if pause(directory, getpass.getuser()) else "sweeps were paused already")
