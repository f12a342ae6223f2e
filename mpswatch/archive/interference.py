"""Interference documents: beside the runs, in a directory of their own, so that no reader of runs ever meets one."""

from __future__ import annotations

import contextlib
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from mpswatch.archive.files import (
    ArchiveError,
    named_errors,
    read_document,
    refuse_other_stack,
    write_document,
)
from mpswatch.archive.names import ending_of, run_part, series_and_time
from mpswatch.documents import InterferenceDocument

_NAME = re.compile(
    r"(?P<host>[^_]+)_(?P<gpu>[^_]+)_(?P<time>\d{8}T\d{6}Z)_(?P<daemon>[^_]+)_(?P<run>[^_.]+)"
    r"\.interference(?P<simulated>\.simulated)?\.json(?:\.gz)?"
)


class Interferences:
    """The documents below `directory`/interference, bounded by `keep_age` and by `most` files."""

    def __init__(
        self,
        directory: Path,
        *,
        gzip: bool = False,
        keep_age: timedelta | None = None,
        most: int = 1000,
        simulated: bool = False,
    ) -> None:
        self.directory = directory / "interference"
        self._gzip = gzip
        self._keep_age = keep_age
        self._most = most
        self._simulated = simulated

    def write(self, document: InterferenceDocument) -> Path:
        """Write a document so that it is complete under its name, or absent; then drop those over age or number."""
        refuse_other_stack(document, simulated=self._simulated, directory=self.directory)
        path = self.directory / name_of(document, compressed=self._gzip)
        with named_errors("create", self.directory):
            self.directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        write_document(path, document, compressed=self._gzip)
        with contextlib.suppress(ArchiveError):  # what is too old stays a little longer
            self._retain(document.started_at)
        return path

    def names(self) -> list[str]:
        """Name every file that is named as such a document, newest first."""
        with named_errors("list", self.directory):
            try:
                with os.scandir(self.directory) as found:
                    names = [item.name for item in found if _NAME.fullmatch(item.name)]
            except FileNotFoundError:
                return []
        return sorted(names, key=_when, reverse=True)

    def read(self, path: Path) -> InterferenceDocument:
        """Read one; `ArchiveError` names the file and the place in it that is wrong."""
        return read_document(path, InterferenceDocument)

    def find(self, run_id: str) -> Path | None:
        """Give the file of exactly this run; None where there is none."""
        wanted = run_part(run_id)
        matches = map(_NAME.fullmatch, self.names())
        return next(
            (self.directory / match[0] for match in matches if match is not None and match["run"] == wanted), None
        )

    def between(self, since: datetime | None, until: datetime) -> list[Path]:
        """Give the files of those that began in that time (by their names, to the second), newest first."""
        return [
            self.directory / name
            for name in self.names()
            if (since is None or _time(name) >= since.replace(microsecond=0)) and _time(name) < until
        ]

    def latest(self) -> tuple[tuple[InterferenceDocument, ...], tuple[ArchiveError, ...]]:
        """Read the newest of each host, GPU and daemon; with what could not be read."""
        found: dict[tuple[str, ...], InterferenceDocument] = {}
        errors: list[ArchiveError] = []
        for name in self.names():
            match = _NAME.fullmatch(name)
            if match is None or (match["simulated"] is not None) != self._simulated:
                continue
            series = (match["host"], match["gpu"], match["daemon"])
            if series in found:
                continue
            try:
                found[series] = self.read(self.directory / name)
            except ArchiveError as error:
                errors.append(error)
        return tuple(found.values()), tuple(errors)

    def _retain(self, now: datetime) -> None:
        with named_errors("clean", self.directory):
            for number, name in enumerate(self.names()):
                old = self._keep_age is not None and _time(name) < now - self._keep_age
                if number and (old or number >= self._most):
                    (self.directory / name).unlink(missing_ok=True)


def name_of(document: InterferenceDocument, *, compressed: bool) -> str:
    """Give the name that `document` is filed under."""
    ending = ".interference" + ending_of(document, compressed=compressed)
    return "_".join((*series_and_time(document, document.started_at), run_part(document.run_id))) + ending


def _when(name: str) -> tuple[str, str]:
    return name.split("_")[2], name


def _time(name: str) -> datetime:
    return datetime.strptime(name.split("_")[2], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
