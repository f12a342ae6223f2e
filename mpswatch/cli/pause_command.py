"""`mpswatch pause`."""

from __future__ import annotations

import getpass
import json
from pathlib import Path

import click

from mpswatch.cli.options import ARCHIVE, AS_JSON, Source, configured
from mpswatch.daemon.pause import pause


@click.command("pause")
@configured(ARCHIVE, AS_JSON)
def command(*, source: Source, as_json: bool) -> None:
    """Hold every sweep until `mpswatch resume`; survives a restart. A sweep that runs goes on to its end."""
    directory = Path(source.load().archive.directory)
    changed = pause(directory, getpass.getuser())
    if as_json:
        click.echo(json.dumps({"archive": str(directory), "paused": True, "changed": changed}, indent=2))
    else:
        click.echo("sweeps are paused" if changed else "sweeps were paused already")
