"""`mpswatch report`."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

from mpswatch.archive import Archive, ArchiveError
from mpswatch.cli.history_command import moment
from mpswatch.cli.options import ARCHIVE, Source, configured
from mpswatch.documents import Reason
from mpswatch.journal import Journal
from mpswatch.names import printable


@click.command("report")
@click.option("--output", required=True, type=click.Path(path_type=Path, dir_okay=False), help="The HTML file.")
@click.option("--since", metavar="WHEN", help="A date, a time, or how long ago: 2026-11-30, 2026-11-30T12:00Z, 7d.")
@click.option("--until", metavar="WHEN", help="Likewise; default: now.")
@click.option(
    "--pictures", type=click.Path(path_type=Path, file_okay=False), metavar="DIR", help="Write each picture as SVG too."
)
@configured(ARCHIVE)
def command(*, source: Source, output: Path, since: str | None, until: str | None, pictures: Path | None) -> None:
    """Write a period as one HTML file that needs nothing else: curves, histories, tenants, refusals, unknowns."""
    from mpswatch.cli.history_show import building  # noqa: PLC0415 - loads after the arguments are right
    from mpswatch.report import gather, write  # noqa: PLC0415
    from mpswatch.report import pictures as svgs  # noqa: PLC0415

    directory = Path(source.load().archive.directory)
    begin, end = moment(since), moment(until)
    if begin is not None and end is not None and begin >= end:
        raise click.BadParameter("--since is not before --until")
    period = gather(Archive(directory), Journal(directory), since=begin, until=end, progress=building)
    _put(output, write(period))
    if pictures is not None:
        with _named(pictures):
            pictures.mkdir(parents=True, exist_ok=True)
        for name, svg in svgs(period).items():
            _put(pictures / name, svg)
    runs = sum(len(one.runs) for one in period.series)
    click.echo(f"{output}: {runs} runs of {len(period.series)} series, {len(period.events)} events", err=True)
    for problem in period.unreadable:
        click.echo(printable(f"not in it: {problem}"), err=True)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turn the operating system's error into ours, with the path that the user gave and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise  # the reader of the pipe had enough
        detail = f"cannot write {path}: {error.strerror or error}"
        remedy = _REMEDIES.get(error.errno or 0, "give a path in a directory that is there and that you may write to")
        raise ArchiveError(Reason.ARCHIVE_WRITE_FAILED, detail, remedy) from error


_REMEDIES = {
    errno.ENOSPC: "free space on that file system, or give a path on another",
    errno.EDQUOT: "free space below your quota, or give a path on another file system",
}


def _put(path: Path, text: str) -> None:
    """Write a file whole or not at all; into a pipe or a device (/dev/stdout), which are not to be replaced."""
    with _named(path):
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
        else:
            _replace(path.resolve(), text)


def _replace(path: Path, text: str) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}-")
    temporary = Path(name)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
