"""`mpswatch archive ls|show|validate`."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import click

from mpswatch.archive import Archive, ArchiveError, RunEntry, read_run
from mpswatch.archive.files import read_data
from mpswatch.cli.options import ARCHIVE, AS_JSON, Source, configured
from mpswatch.cli.schema_command import KINDS
from mpswatch.daemon.exit import Exit
from mpswatch.documents import Document, DocumentError, Event, Reason, SweepDocument, from_json, to_json
from mpswatch.names import printable


@click.group("archive")
def command() -> None:
    """List, show and validate archived runs."""


@command.command("ls")
@click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most that many, newest first."
)
@configured(ARCHIVE, AS_JSON)
def ls(*, source: Source, limit: int, as_json: bool) -> None:
    """List runs by their file names, newest first; none is opened."""
    entries = list(itertools.islice(_archive(source).entries(), limit))
    if as_json:
        click.echo(json.dumps([_plain(entry) for entry in entries], indent=2))
        return
    for entry in entries:
        simulated = "  simulated" if entry.simulated else ""
        started = f"{entry.started:%Y-%m-%dT%H:%M:%SZ}"
        whose = f"{entry.host}  {entry.gpu}  {entry.daemon}  {entry.plan}{simulated}"
        click.echo(printable(f"{started}  {entry.run_id:<21}  {whose}"))


@command.command("show")
@click.argument("run", default="latest")
@configured(ARCHIVE, AS_JSON)
def show_run(*, source: Source, run: str, as_json: bool) -> None:
    """Show one run: a file, a run id (its beginning is enough), or `latest`."""
    document = read_run(_path_of(_archive(source), run))
    if as_json:
        sys.stdout.buffer.write(to_json(document, indent=2) + b"\n")
        return
    from mpswatch.cli import show  # noqa: PLC0415 - rich is for those who draw

    show.print_sweep(document, show.console())


@command.command("validate")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--quiet", is_flag=True, help="Name only what is bad.")
@configured(ARCHIVE, AS_JSON)
def validate(*, source: Source, paths: tuple[Path, ...], quiet: bool, as_json: bool) -> None:
    """Check files: runs, polls, interference, and journals (.jsonl); a directory stands for all of those below it.

    Without PATHS the archive is checked. Each bad one is named with the place of the fault, and the exit code is 1.
    """
    found = [(path, _fault(path)) for path in _files(paths or (_archive(source).directory,))]
    bad = [(path, fault) for path, fault in found if fault is not None]
    if as_json:
        plain = [{"path": str(path), "fault": fault} for path, fault in (bad if quiet else found)]
        click.echo(json.dumps(plain, indent=2))
    else:
        for path, fault in found:
            if fault is not None:
                click.echo(printable(f"{path}: {fault}"), err=True)
            elif not quiet:
                click.echo(printable(f"{path}: in order"))
    if bad:
        sys.stdout.flush()
        raise click.exceptions.Exit(Exit.FAILED)


def _archive(source: Source) -> Archive:
    return Archive(Path(source.load().archive.directory))


def _plain(entry: RunEntry) -> dict[str, object]:
    return {
        "path": str(entry.path),
        "run_id": entry.run_id,
        "started": entry.started.isoformat(),
        "host": entry.host,
        "gpu": entry.gpu,
        "daemon": entry.daemon,
        "plan": entry.plan,
        "simulated": entry.simulated,
    }


def _path_of(archive: Archive, run: str) -> Path:
    if "/" in run or Path(run).is_file():
        return Path(run)
    for entry in archive.entries():
        if run == "latest" or entry.run_id.startswith(run) or entry.path.name == run:
            return entry.path
    raise ArchiveError(Reason.NEVER_SEEN, f"no run {run!r} in {archive.directory}", "see: mpswatch archive ls")


def _files(paths: tuple[Path, ...]) -> list[Path]:
    found = []
    for path in paths:
        found += sorted(item for item in path.rglob("*.json*") if item.is_file()) if path.is_dir() else [path]
    return found


class _Any(Document, frozen=True, kw_only=True):
    """What every document but an event says of itself; the reference's say nothing."""

    kind: str = "sweep"


def _fault(path: Path) -> str | None:
    """What is wrong with the file, with its place; None when it is in order."""
    try:
        data = read_data(path)
        if path.suffix == ".jsonl":
            return _journal_fault(data)
        from_json(data, KINDS.get(from_json(data, _Any).kind, SweepDocument))
    except ArchiveError as error:
        return error.detail.removeprefix(f"{path}: ")
    except DocumentError as error:
        return str(error)
    return None


def _journal_fault(data: bytes) -> str | None:
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            from_json(line, Event)
        except DocumentError as error:
            return f"line {number}: {error}"
    return None
