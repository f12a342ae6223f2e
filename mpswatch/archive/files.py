"""Single files of the archive: written durably, read with bounds, and errors that name path and remedy."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import os
import stat
import time
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from mpswatch.documents import (
    Document,
    DocumentError,
    InterferenceDocument,
    Reason,
    SweepDocument,
    from_json,
    to_json,
)
from mpswatch.errors import MpswatchError

D = TypeVar("D", bound=Document)

MAX_DOCUMENT_BYTES = 64 << 20
"""A file larger than this, also once decompressed, is no run of ours (a five-cap run is about 20 KiB)."""

TEMPORARY = ".writing-"

REMEDIES = {
    errno.ENOSPC: "free space on that file system, or lower archive.keep_bytes",
    errno.EDQUOT: "raise the quota of the user that mpswatch runs as, or lower archive.keep_bytes",
    errno.EROFS: "remount the file system writable, or choose another archive.directory",
    errno.EACCES: "give the directory to the user that mpswatch runs as",
    errno.EPERM: "give the directory to the user that mpswatch runs as",
    errno.ENOENT: "create the directory again (mount it), then restart mpswatch",
    errno.EEXIST: "archive.directory must be a directory",
    errno.ENOTDIR: "archive.directory must be a directory",
    errno.ELOOP: "replace the symbolic link by a directory: links inside an archive are not followed",
}


class ArchiveError(MpswatchError):
    """The archive could not be written or read; `detail` names the path and what was wrong there."""


@contextlib.contextmanager
def named_errors(verb: str, path: Path) -> Iterator[None]:
    """Turn the operating system's error into ours, with the path, and the remedy where there is one."""
    reading = verb in ("read", "list")
    try:
        yield
    except OSError as error:
        reason = Reason.ARCHIVE_READ_FAILED if reading else Reason.ARCHIVE_WRITE_FAILED
        where = Path(str(error.filename or path))
        text = error.strerror or str(error)
        # Each try has a temporary file of its own: with its name, each would be an error that nobody has seen before.
        elsewhere = where != path and not where.name.startswith(TEMPORARY)
        detail = f"cannot {verb} {path}: {text}" + (f" ({where})" if elsewhere else "")
        raise ArchiveError(reason, detail, REMEDIES.get(error.errno or 0)) from error


def read_run(path: Path) -> SweepDocument:
    """Read one run from any file, compressed or not; `ArchiveError` names the file and the place in it."""
    return read_document(path, SweepDocument)


def read_document(path: Path, kind: type[D]) -> D:
    """Read a document of `kind`, as `read_run` does."""
    try:
        return from_json(read_data(path), kind)
    except DocumentError as error:
        raise ArchiveError(Reason.ARCHIVE_READ_FAILED, f"{path}: {error}") from None


def read_data(path: Path) -> bytes:
    """Give what a file holds, decompressed where it is compressed."""
    with named_errors("read", path), open(path, "rb", opener=_without_following_or_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ArchiveError(Reason.ARCHIVE_READ_FAILED, f"{path}: not a regular file")
        data = file.read(MAX_DOCUMENT_BYTES + 1)
    if data.startswith(b"\x1f\x8b"):
        data = _decompress(path, data)
    if len(data) > MAX_DOCUMENT_BYTES:
        raise ArchiveError(Reason.ARCHIVE_READ_FAILED, f"{path}: larger than any run ({MAX_DOCUMENT_BYTES} bytes)")
    return data


def _without_following_or_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _decompress(path: Path, data: bytes) -> bytes:
    reader = zlib.decompressobj(wbits=31)
    try:
        plain = reader.decompress(data, MAX_DOCUMENT_BYTES + 1)
    except zlib.error as error:
        raise ArchiveError(Reason.ARCHIVE_READ_FAILED, f"{path}: {error}") from None
    if not reader.eof and len(plain) <= MAX_DOCUMENT_BYTES:
        raise ArchiveError(Reason.ARCHIVE_READ_FAILED, f"{path}: compressed data end too early")
    return plain


def write_document(path: Path, document: SweepDocument | InterferenceDocument, *, compressed: bool) -> None:
    """Write `document` so that it is complete under its name, or absent; an `ArchiveError` names the path."""
    data = to_json(document, indent=2) + b"\n"
    with named_errors("write", path):
        write_durably(path, gzip.compress(data, mtime=0) if compressed else data)


def refuse_other_stack(document: SweepDocument | InterferenceDocument, *, simulated: bool, directory: Path) -> None:
    """Raise `ArchiveError` for a document of the other kind of stack than the archive's."""
    if document.simulated != simulated:
        what = "simulated" if document.simulated else "measured"
        raise ArchiveError(Reason.REHEARSAL_STACK, f"a {what} document does not belong into {directory}")


def write_durably(path: Path, data: bytes) -> None:
    """Write a file so that it is complete under its name, or absent, whatever happens in between."""
    descriptor, temporary = new_temporary(path.parent)
    try:
        fill(descriptor, data)
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)  # and with it the lock: by now the name is gone
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def take_lock(descriptor: int, *, until: float) -> bool:
    """Lock a file alone; False when another process still holds it at `until` (time.monotonic).

    Raises OSError on a file system without locks.
    """
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.005)
        else:
            return True


def new_temporary(directory: Path) -> tuple[int, Path]:
    """Create a temporary file and lock it, so that `prepare` of another process leaves it alone."""
    while True:
        path = directory / f"{TEMPORARY}{uuid.uuid4().hex}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass  # another process took it for abandoned between these two lines, and is about to remove it
        except OSError:
            return descriptor, path  # a file system without locks: there, what a crash leaves stays
        if os.fstat(descriptor).st_nlink:
            return descriptor, path
        os.close(descriptor)


def fill(descriptor: int, data: bytes) -> None:
    """Write all of `data` and sync it; readable by owner and group."""
    os.fchmod(descriptor, 0o640)
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
    os.fsync(descriptor)


def remove_if_abandoned(path: Path) -> bool:
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
