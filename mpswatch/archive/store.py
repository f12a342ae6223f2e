"""The archive as a whole: written to, looked through by name, and kept within its bounds."""

from __future__ import annotations

import contextlib
import errno
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

from mpswatch.archive.files import (
    TEMPORARY,
    ArchiveError,
    fill,
    named_errors,
    new_temporary,
    read_run,
    refuse_other_stack,
    remove_if_abandoned,
    write_document,
)
from mpswatch.archive.names import RunEntry, Series, entry_of, is_run_name, name_of, newest_first, series_of
from mpswatch.documents import Reason, SweepDocument

LOOK_BACK = 50
"""So many files of a series are opened at most in search of a run that can be read and is complete."""


class Archive:
    """The runs below `directory`. Compressed with `gzip`; `keep_age` and `keep_bytes` bound it (None: no bound).

    `simulated` says whose archive this is: a run of the other kind of stack is not written, and not given by `latest`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        gzip: bool = False,
        keep_age: timedelta | None = None,
        keep_bytes: int | None = None,
        simulated: bool = False,
    ) -> None:
        self.directory = directory
        self.runs = directory / "runs"
        self._gzip = gzip
        self._keep_age = keep_age
        self._keep_bytes = keep_bytes
        self._simulated = simulated

    def prepare(self) -> tuple[Path, ...]:
        """Create the directories and remove what a crash left half-written; returns what was removed."""
        with named_errors("create", self.runs):
            self.directory.mkdir(mode=0o750, parents=True, exist_ok=True)
            self.runs.mkdir(mode=0o750, exist_ok=True)
        if self._simulated and self.holds_measured():
            raise ArchiveError(
                Reason.REHEARSAL_STACK,
                f"{self.directory} holds measured runs: a rehearsal does not write beside them",
                "give the rehearsal a directory of its own",
            )
        with named_errors("clean", self.runs):
            leftovers = [path for path in self.runs.iterdir() if path.name.startswith(TEMPORARY)]
            return tuple(path for path in leftovers if remove_if_abandoned(path))

    def write(self, document: SweepDocument) -> Path:
        """Write a run so that it is complete under its name, or absent, whatever happens in between."""
        refuse_other_stack(document, simulated=self._simulated, directory=self.directory)
        path = self.runs / name_of(document, compressed=self._gzip)
        write_document(path, document, compressed=self._gzip)
        return path

    def names(self) -> list[str]:
        """Name every file that is named as a run, newest first."""
        return [name for name in self._newest_first() if is_run_name(name)]

    def entries(self) -> Iterator[RunEntry]:
        """Yield every run by name alone, newest first; files that are named otherwise are left out (`foreign`)."""
        yield from self._entries(self._newest_first())

    def _newest_first(self) -> list[str]:
        return newest_first(item.name for item in self._files())

    def _entries(self, names: Iterable[str]) -> Iterator[RunEntry]:
        """Read names one at a time, because an entry is ten times as large as its name."""
        return (entry for name in names if (entry := entry_of(self.runs, name)) is not None)

    def foreign(self) -> tuple[Path, ...]:
        """Name the files in the runs' directory that no mpswatch wrote."""
        return tuple(
            Path(item.path)
            for item in self._files()
            if not is_run_name(item.name) and not item.name.startswith(TEMPORARY)
        )

    def read(self, path: Path) -> SweepDocument:
        """Read one run; `ArchiveError` names the file and the place in it that is wrong."""
        return read_run(path)

    def latest(self) -> tuple[tuple[SweepDocument, ...], tuple[ArchiveError, ...]]:
        """Read back the newest readable run of each host, GPU, daemon and plan; with what could not be read.

        Where that run is partial, the newest complete one among the last 50 comes too, for the time of its success.
        Opens one file a series where all is well, however many runs there are.
        """
        found: dict[Series, list[SweepDocument]] = defaultdict(list)
        opened: dict[Series, int] = defaultdict(int)
        errors = []
        for name in self._newest_first():
            series = series_of(name)
            if opened[series] >= LOOK_BACK or (found[series] and found[series][-1].complete_sweep):
                continue
            entry = entry_of(self.runs, name)
            if entry is None or entry.simulated != self._simulated:
                continue
            opened[series] += 1
            try:
                document = read_run(entry.path)
            except ArchiveError as error:
                errors.append(error)
                continue
            if document.simulated == self._simulated and (not found[series] or document.complete_sweep):
                found[series].append(document)
        return tuple(document for runs in found.values() for document in runs), tuple(errors)

    def retain(self, now: datetime) -> tuple[Path, ...]:
        """Remove runs over age, then the oldest over size; returns what was removed.

        The newest complete run of each GPU stays whatever its age and size, and so does what is not a run.
        """
        if self._keep_age is None and self._keep_bytes is None:
            return ()
        names = self._newest_first()
        kept: set[str] | None = None
        total = self.usage() if self._keep_bytes is not None else 0
        removed = []
        for entry in self._entries(reversed(names)):
            old = self._keep_age is not None and entry.started < now - self._keep_age
            if not old and (self._keep_bytes is None or total <= self._keep_bytes):
                break
            if kept is None:
                kept = self._newest_complete(self._entries(names))
            if entry.name in kept:
                continue
            total -= _size(entry.path)
            with named_errors("clean", entry.path):
                entry.path.unlink(missing_ok=True)
            removed.append(entry.path)
        return tuple(removed)

    def usage(self) -> int:
        """Give the bytes that the runs take (file sizes, without the journal)."""
        return sum(_size(item) for item in self._files())

    def holds_measured(self) -> bool:
        """Say whether any run here was measured; a file whose name says nothing is opened to see."""
        return self._holds(simulated=False)

    def holds_simulated(self) -> bool:
        """Say whether any run here came from a rehearsal."""
        return self._holds(simulated=True)

    def writable(self) -> ArchiveError | None:
        """Try whether a run could be written now: None, or the error with its remedy. Leaves nothing behind."""
        try:
            with named_errors("write", self.runs if self.runs.exists() else self.directory):
                if self.runs.exists():
                    descriptor, probe = new_temporary(self.runs)
                    try:
                        fill(descriptor, b"{}\n")
                    finally:
                        probe.unlink()
                        os.close(descriptor)
                else:
                    nearest = next(parent for parent in (self.directory, *self.directory.parents) if parent.exists())
                    if not nearest.is_dir():
                        raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(nearest))
                    if not os.access(nearest, os.W_OK | os.X_OK):
                        raise PermissionError(errno.EACCES, "not writable", str(nearest))
        except ArchiveError as error:
            return error
        return None

    def _files(self) -> Iterator[os.DirEntry[str]]:
        """Yield the regular files among the runs; symbolic links are not followed, a missing directory is empty.

        One at a time: each keeps what is asked of it, and 100,000 of them would be 100 MiB.
        """
        with named_errors("list", self.runs), contextlib.suppress(FileNotFoundError), os.scandir(self.runs) as found:
            yield from (item for item in found if item.is_file(follow_symlinks=False))

    def _newest_complete(self, newest_first: Iterable[RunEntry]) -> set[str]:
        found: dict[tuple[str, str], str] = {}
        for entry in newest_first:
            gpu = (entry.host, entry.gpu)
            if gpu in found:
                continue
            with contextlib.suppress(ArchiveError):
                if read_run(entry.path).complete_sweep:
                    found[gpu] = entry.name
        return set(found.values())

    def _holds(self, *, simulated: bool) -> bool:
        unnamed = []
        for item in self._files():
            entry = entry_of(self.runs, item.name)
            if entry is None:
                unnamed.append(Path(item.path))
            elif entry.simulated == simulated:
                return True
        for path in unnamed:
            with contextlib.suppress(ArchiveError):
                if read_run(path).simulated == simulated:
                    return True
        return False


def _size(file: Path | os.DirEntry[str]) -> int:
    try:
        return file.stat(follow_symlinks=False).st_size
    except OSError:
        return 0
