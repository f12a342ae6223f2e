"""`mpswatch check-config`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from mpswatch.cli.options import AS_JSON, Source, configured
from mpswatch.config import example
from mpswatch.config.shape import as_plain


@click.command("check-config")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--example", "show_example", is_flag=True, help="Print a commented example file and leave.")
@configured(AS_JSON)
def command(*, source: Source, file: Path | None, show_example: bool, as_json: bool) -> None:
    """Check a configuration: every fault is named with its key, and the exit code is 2.

    With --json the configuration in force is printed, defaults included.
    """
    if show_example:
        click.echo(example(), nl=False)
        return
    if file is not None:
        source.file = file
    config = source.load()
    if as_json:
        click.echo(json.dumps(as_plain(config), indent=2))
    else:
        click.echo(f"{source.file or 'the defaults'}: in order")
