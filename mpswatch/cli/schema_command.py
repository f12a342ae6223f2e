"""`mpswatch schema sweep|poll|event|interference`."""

from __future__ import annotations

import json

import click

from mpswatch import documents

KINDS: dict[str, type[documents.Document]] = {
    "sweep": documents.SweepDocument,
    "poll": documents.PollSnapshot,
    "event": documents.Event,
    "interference": documents.InterferenceDocument,
}


@click.command("schema")
@click.argument("kind", type=click.Choice(list(KINDS)))
def command(kind: str) -> None:
    """Print the JSON Schema (draft 2020-12) of a document."""
    click.echo(json.dumps(documents.json_schema(KINDS[kind]), indent=2))
