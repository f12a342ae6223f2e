"""`mpswatch history`: each cap over time, as a picture in the terminal and a table."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mpswatch.archive import Archive
from mpswatch.cli.options import ARCHIVE, AS_JSON, Source, configured
from mpswatch.config.units import duration
from mpswatch.names import printable

if TYPE_CHECKING:
    from mpswatch.history import Index, RunFacts, Series


@click.command("history")
@click.option("--gpu", metavar="UUID", default="", help="Only this GPU (the beginning of its UUID is enough).")
@click.option("--daemon", metavar="NAME", help="Only under this control daemon.")
@click.option("--plan", metavar="NAME", help="Only this plan: quick or thorough.")
@click.option("--cap", metavar="PERCENT", help="Only this cap.")
@click.option("--since", metavar="WHEN", help="A date, a time, or how long ago: 2026-11-30, 2026-11-30T12:00Z, 7d.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Rows of the table.")
@configured(ARCHIVE, AS_JSON)
def command(
    *,
    source: Source,
    gpu: str,
    daemon: str | None,
    plan: str | None,
    cap: str | None,
    since: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show each cap over time, and how each run stands against the ones before it.

    Runs of different GPUs, daemons, plans, sizes, dtypes, iterations, clients or hosts are different histories: each
    is shown by itself, never averaged together.
    """
    from mpswatch.cli import history_show  # noqa: PLC0415 - rich is for those who draw
    from mpswatch.history import read_with_index  # noqa: PLC0415
    from mpswatch.sweep.plan import canonical_cap  # noqa: PLC0415

    archive = Archive(Path(source.load().archive.directory))
    begin = moment(since)
    cap = canonical_cap(cap) if cap is not None else None

    def read(index: Index) -> tuple[list[tuple[Series, list[RunFacts]]], tuple[str, ...]]:
        found = []
        for series, _count, newest in index.series(gpu=gpu, daemon=daemon, plan=plan):
            if begin is None or newest >= begin:
                found.append((series, list(index.runs(series, since=begin, newest=history_show.MOST))))
        return found, tuple(f"{file.path.name}: {file.problem}" for file in index.unreadable())

    found, unreadable = read_with_index(archive, read, progress=history_show.building)
    for problem in unreadable:
        click.echo(printable(f"not in any history: {problem}"), err=True)
    if as_json:
        click.echo(json.dumps([history_show.plain(series, runs, cap) for series, runs in found], indent=2))
        return
    if not found:
        asked = {"--gpu": gpu, "--daemon": daemon, "--plan": plan, "--since": since}
        said = " ".join(f"{option} {value}" for option, value in asked.items() if value)
        click.echo(printable(f"no run in {archive.directory}" + (f" is of {said}" if said else "")), err=True)
        change = "leave one of these out" if said else "give another with --archive, or make a run: mpswatch sweep"
        click.echo(f"  {change}; mpswatch archive ls lists what is there", err=True)
    for series, runs in found:
        history_show.print_series(series, runs, cap=cap, limit=limit)


def moment(text: str | None) -> datetime | None:
    """A date, a time (UTC unless it says otherwise) or an age such as 7d, as a time."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        try:
            return datetime.now(UTC) - timedelta(seconds=duration(text))
        except (ValueError, OverflowError):
            raise click.BadParameter(f"{text!r} is neither a date, nor a time, nor an age such as 7d") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
