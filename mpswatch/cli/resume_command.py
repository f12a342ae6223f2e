"""`mpswatch resume`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from mpswatch.cli.options import ARCHIVE, AS_JSON, Source, configured
from mpswatch.daemon.pause import resume


@click.command("resume")
@configured(ARCHIVE, AS_JSON)
def command(*, source: Source, as_json: bool) -> None:
    """Let sweeps run again."""
    directory = Path(source.load().archive.directory)
    changed = resume(directory)
    if as_json:
        click.echo(json.dumps({"archive": str(directory), "paused": False, "changed": changed}, indent=2))
    else:
        click.echo("sweeps run again" if changed else "sweeps were not paused")
