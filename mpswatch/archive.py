"""Runs as files: one JSON document a GPU and sweep, atomic and durable, retained by age and size.

A name carries everything that finding a run needs, so that listing 100,000 of them opens none:

    DIRECTORY/runs/HOST_GPU_YYYYmmddTHHMMSSZ_DAEMON_PLAN_RUNID[.simulated].json[.gz]

A run is written to a temporary file beside its place, synced, renamed, and the directory synced: under its
own name a file is complete or absent. The writer holds a lock (flock) on its temporary file, so that what
a crash left can be told from what another process is writing at this moment.

For the daemon: `prepare()` at the start, `write(document)`, `latest()`, `news()` at each poll,
`retain()` after a write, `usage()`, `writable()` for doctor. Everything raises `ArchiveError` alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import os
import re
import stat
import time
import uuid as uuids
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from mpswatch.documents import DocumentError, Reason, SweepDocument, from_json, to_json
from mpswatch.errors import MpswatchError

MAX_DOCUMENT_BYTES = 64 << 20
"""A file larger than this, also once decompressed, is no run of ours (a five-cap run is about 20 KiB)."""

TEMPORARY = ".writing-"
_TIME = "%Y%m%dT%H%M%SZ"
_NAME = re.compile(
    r"(?P<host>[^_]+)_(?P<gpu>[^_]+)_(?P<time>\d{8}T\d{6}Z)_(?P<daemon>[^_]+)_(?P<plan>[^_]+)_(?P<run>[^_.]+)"
    r"(?P<simulated>\.simulated)?\.json(?:\.gz)?"
)

REMEDIES = {
    errno.ENOSPC: "free space on that file system, or lower archive.keep_bytes",
    errno.EDQUOT: "raise the quota of the user that mpswatch runs as, or lower archive.keep_bytes",
    errno.EROFS: "remount the file system writable, or choose another archive.directory",
    errno.EACCES: "give the directory to the user that mpswatch runs as",
    errno.EPERM: "give the directory to the user that mpswatch runs as",
    errno.ENOENT: "create the directory again (mount it), then restart mpswatch",
    errno.ENOTDIR: "archive.directory must be a directory",
    errno.ELOOP: "replace the symbolic link by a directory: links inside an archive are not followed",
}


class ArchiveError(MpswatchError):
    """The archive could not be written or read; `detail` names the path and what was wrong there."""


class RunEntry(NamedTuple):
    """A run as its file's name gives it, unopened. `gpu` is the uuid's first group; `daemon` has only [A-Za-z0-9.-]."""

    path: Path
    host: str
    gpu: str
    started: datetime
    daemon: str
    plan: str
    run_id: str
    simulated: bool

    @property
    def series(self) -> tuple[str, str, str, str]:
        """What a run is one more of: host, GPU, daemon, plan."""
        return (self.host, self.gpu, self.daemon, self.plan)


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
        self._looked_at: float | None = None
        self._newest_of: dict[tuple[str, str, str, str], str] = {}

    def prepare(self) -> tuple[Path, ...]:
        """Create the directories and remove what a crash left half-written; returns what was removed."""
        with _named_errors("create", self.runs):
            self.directory.mkdir(mode=0o750, parents=True, exist_ok=True)
            self.runs.mkdir(mode=0o750, exist_ok=True)
        if self._simulated and self.holds_measured():
            raise ArchiveError(
                Reason.REHEARSAL_STACK,
                f"{self.directory} holds measured runs: a rehearsal does not write beside them",
                "give the rehearsal a directory of its own",
            )
        with _named_errors("clean", self.runs):
            leftovers = [path for path in self.runs.iterdir() if path.name.startswith(TEMPORARY)]
            return tuple(path for path in leftovers if _remove_if_abandoned(path))

    def write(self, document: SweepDocument) -> Path:
        """Write a run so that it is complete under its name, or absent, whatever happens in between."""
        if document.simulated != self._simulated:
            raise ArchiveError(
                Reason.REHEARSAL_STACK,
                f"a {'simulated' if document.simulated else 'measured'} run does not belong into {self.directory}",
            )
        data = to_json(document, indent=2) + b"\n"
        if self._gzip:
            data = gzip.compress(data, mtime=0)
        path = self.runs / _name(document, compressed=self._gzip)
        with _named_errors("write", path):
            _write_durably(path, data)
        return path

    def entries(self) -> Iterator[RunEntry]:
        """Yield every run by name alone, newest first; files that are named otherwise are left out (`foreign`)."""
        found = [entry for item in self._files() if (entry := _entry(item)) is not None]
        found.sort(key=lambda entry: (entry.started, entry.path.name), reverse=True)
        yield from found

    def foreign(self) -> tuple[Path, ...]:
        """Name the files in the runs' directory that no mpswatch wrote."""
        return tuple(
            Path(item.path)
            for item in self._files()
            if _NAME.fullmatch(item.name) is None and not item.name.startswith(TEMPORARY)
        )

    def read(self, path: Path) -> SweepDocument:
        """Read one run; `ArchiveError` names the file and the place in it that is wrong."""
        return read_run(path)

    def latest(self) -> tuple[tuple[SweepDocument, ...], tuple[ArchiveError, ...]]:
        """Read back the newest readable run of each host, GPU, daemon and plan; with what could not be read.

        Opens one file a series (and one more for each bad one), however many runs there are.
        """
        return self._newest(self.entries())

    def newer_than(self, entry: RunEntry | None) -> tuple[RunEntry, ...]:
        """Name the runs that began after `entry` (all, for None), newest first; see `news` for what others wrote."""
        return tuple(found for found in self.entries() if entry is None or found.started > entry.started)

    def news(self) -> tuple[RunEntry, ...]:
        """Name the newest run of each series that was not the newest at the last call: what another process wrote.

        Cheap while nothing changed (one stat), so that it can be asked at each poll. The first call names all.
        """
        with _named_errors("list", self.runs):
            changed = self.runs.stat().st_mtime
        if changed == self._looked_at:
            return ()
        newest: dict[tuple[str, str, str, str], RunEntry] = {}
        for entry in self.entries():
            newest.setdefault(entry.series, entry)
        found = tuple(entry for series, entry in newest.items() if self._newest_of.get(series) != entry.path.name)
        self._newest_of = {series: entry.path.name for series, entry in newest.items()}
        # A file may come within the same tick of the file system's clock: only a change that is past is remembered.
        self._looked_at = changed if abs(time.time() - changed) > 2.0 else None
        return found

    def retain(self, now: datetime) -> tuple[Path, ...]:
        """Remove runs over age, then the oldest over size; returns what was removed.

        The newest complete run of each GPU stays whatever its age and size, and so does what is not a run.
        """
        if self._keep_age is None and self._keep_bytes is None:
            return ()
        oldest_first = list(self.entries())[::-1]
        doomed: list[Path] = []
        if self._keep_age is not None:
            limit = now - self._keep_age
            doomed = [entry.path for entry in oldest_first if entry.started < limit]
        if self._keep_bytes is not None:
            sizes = {entry.path: _size(entry.path) for entry in oldest_first}
            total = sum(sizes.values()) - sum(sizes[path] for path in doomed)
            for entry in oldest_first[len(doomed) :]:
                if total <= self._keep_bytes:
                    break
                doomed.append(entry.path)
                total -= sizes[entry.path]
        if not doomed:
            return ()
        kept = self._newest_complete(oldest_first[::-1])
        removed = [path for path in doomed if path not in kept]
        with _named_errors("clean", self.runs):
            for path in removed:
                path.unlink(missing_ok=True)
        return tuple(removed)

    def usage(self) -> int:
        """Give the bytes that the runs take (file sizes, without the journal)."""
        return sum(_size(Path(item.path)) for item in self._files())

    def holds_measured(self) -> bool:
        """Say whether any run here was measured; a file whose name says nothing is opened to see."""
        return self._holds(simulated=False)

    def holds_simulated(self) -> bool:
        """Say whether any run here came from a rehearsal."""
        return self._holds(simulated=True)

    def writable(self) -> ArchiveError | None:
        """Try whether a run could be written now: None, or the error with its remedy. Leaves nothing behind."""
        probe = self.runs / f"{TEMPORARY}{uuids.uuid4().hex}"
        try:
            with _named_errors("write", self.runs if self.runs.exists() else self.directory):
                if self.runs.exists():
                    _write_temporary(probe, b"{}\n")
                    probe.unlink()
                else:
                    nearest = next(parent for parent in (self.directory, *self.directory.parents) if parent.exists())
                    if not nearest.is_dir():
                        raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(nearest))
                    if not os.access(nearest, os.W_OK | os.X_OK):
                        raise PermissionError(errno.EACCES, "not writable", str(nearest))
        except ArchiveError as error:
            return error
        return None

    def _files(self) -> list[os.DirEntry[str]]:
        """List the regular files among the runs; symbolic links are not followed, a missing directory is empty."""
        with _named_errors("list", self.runs):
            try:
                with os.scandir(self.runs) as found:
                    return [item for item in found if item.is_file(follow_symlinks=False)]
            except FileNotFoundError:
                return []

    def _newest(self, entries: Iterable[RunEntry]) -> tuple[tuple[SweepDocument, ...], tuple[ArchiveError, ...]]:
        documents: dict[tuple[str, str, str, str], SweepDocument] = {}
        errors = []
        for entry in entries:
            if entry.series in documents or entry.simulated != self._simulated:
                continue
            try:
                document = read_run(entry.path)
            except ArchiveError as error:
                errors.append(error)
                continue
            if document.simulated == self._simulated:
                documents[entry.series] = document
        return tuple(documents.values()), tuple(errors)

    def _newest_complete(self, newest_first: Iterable[RunEntry]) -> set[Path]:
        found: dict[tuple[str, str], Path] = {}
        for entry in newest_first:
            gpu = (entry.host, entry.gpu)
            if gpu in found:
                continue
            with contextlib.suppress(ArchiveError):
                if read_run(entry.path).complete_sweep:
                    found[gpu] = entry.path
        return set(found.values())

    def _holds(self, *, simulated: bool) -> bool:
        unnamed = []
        for item in self._files():
            entry = _entry(item)
            if entry is None:
                unnamed.append(Path(item.path))
            elif entry.simulated == simulated:
                return True
        for path in unnamed:
            with contextlib.suppress(ArchiveError):
                if read_run(path).simulated == simulated:
                    return True
        return False


def read_run(path: Path) -> SweepDocument:
    """Read one run from any file, compressed or not; `ArchiveError` names the file and the place in it."""
    with _named_errors("read", path):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ArchiveError(Reason.ARCHIVE_READ_FAILED, f"{path}: not a regular file")
            data = file.read(MAX_DOCUMENT_BYTES + 1)
    if data.startswith(b"\x1f\x8b"):
        data = _decompress(path, data)
    if len(data) > MAX_DOCUMENT_BYTES:
        raise ArchiveError(Reason.ARCHIVE_READ_FAILED, f"{path}: larger than any run ({MAX_DOCUMENT_BYTES} bytes)")
    try:
        return from_json(data, SweepDocument)
    except DocumentError as error:
        raise ArchiveError(Reason.ARCHIVE_READ_FAILED, f"{path}: {error}") from None


def _decompress(path: Path, data: bytes) -> bytes:
    reader = zlib.decompressobj(wbits=31)
    try:
        plain = reader.decompress(data, MAX_DOCUMENT_BYTES + 1)
    except zlib.error as error:
        raise ArchiveError(Reason.ARCHIVE_READ_FAILED, f"{path}: {error}") from None
    if not reader.eof and len(plain) <= MAX_DOCUMENT_BYTES:
        raise ArchiveError(Reason.ARCHIVE_READ_FAILED, f"{path}: compressed data end too early")
    return plain


def _plain(text: str) -> str:
    """Make one component of a name out of any text: [A-Za-z0-9.-], never empty, never starting with a dot."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-.")[:64] or "unknown"


def _name(document: SweepDocument, *, compressed: bool) -> str:
    started = (document.started_at or document.recorded_at).astimezone(UTC)
    gpu = "-".join(document.gpu.uuid.split("-")[:2]) if document.gpu is not None else "unknown"
    daemon = document.mps.daemon if document.mps is not None else document.pipe_directory
    run = (document.run_id or uuids.uuid4().hex[:12]).replace(".", "-")
    parts = (_plain(document.host), _plain(gpu), started.strftime(_TIME), _plain(daemon))
    ending = (".simulated" if document.simulated else "") + ".json" + (".gz" if compressed else "")
    return "_".join((*parts, _plain(document.protocol.plan), _plain(run))) + ending


def _entry(item: os.DirEntry[str]) -> RunEntry | None:
    match = _NAME.fullmatch(item.name)
    if match is None:
        return None
    try:
        started = datetime.strptime(match["time"], _TIME).replace(tzinfo=UTC)
    except ValueError:
        return None
    simulated = match["simulated"] is not None
    return RunEntry(
        Path(item.path), match["host"], match["gpu"], started, match["daemon"], match["plan"], match["run"], simulated
    )


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _write_durably(path: Path, data: bytes) -> None:
    temporary = path.with_name(f"{TEMPORARY}{uuids.uuid4().hex}")
    try:
        _write_temporary(temporary, data, rename_to=path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _write_temporary(temporary: Path, data: bytes, rename_to: Path | None = None) -> None:
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb", buffering=0) as file:
        # Held until the rename is done: `prepare` of another process leaves a locked file alone.
        with contextlib.suppress(OSError):  # a file system without locks: then age alone decides
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.fchmod(descriptor, 0o640)
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
        if rename_to is not None:
            temporary.rename(rename_to)
        file.flush()


def _remove_if_abandoned(path: Path) -> bool:
    """Remove a temporary file that no living process holds the lock of."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


@contextlib.contextmanager
def _named_errors(verb: str, path: Path) -> Iterator[None]:
    """Turn the operating system's error into ours, with the path, and the remedy where there is one."""
    reading = verb in ("read", "list")
    try:
        yield
    except OSError as error:
        reason = Reason.ARCHIVE_READ_FAILED if reading else Reason.ARCHIVE_WRITE_FAILED
        where = error.filename or path
        text = error.strerror or str(error)
        detail = f"cannot {verb} {path}: {text}" + (f" ({where})" if str(where) != str(path) else "")
        raise ArchiveError(reason, detail, REMEDIES.get(error.errno or 0)) from error
