"""The folder that holds the measuring client's program, and those that a killed daemon left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from mpswatch.proc import Processes

PREFIX = "mpswatch-work-"


def make_work_directory() -> Path:
    """Make a folder of our own below the temporary directory, and remove what dead owners left there.

    Its owner holds a lock on it to the end of the process, however that comes: the kernel lets it go, and what can be
    locked has no owner. Raises OSError where no folder can be made.
    """
    place = Path(tempfile.gettempdir())
    for leftover in place.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another's, in use, or gone meanwhile: not ours to remove
            _remove(leftover)
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        try:
            descriptor = _locked(path)
        except (BlockingIOError, FileNotFoundError):
            continue  # another start took it for a leftover
        except OSError:
            return path  # a file system without locks: nobody removes anything there
        with contextlib.suppress(FileNotFoundError):  # likewise
            if _is_still_at(path, descriptor):
                return path  # the descriptor is never closed: with it the lock would go
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove a folder of ours that nobody owns or uses; OSError where that is not so."""
    descriptor = _locked(path)
    try:
        if os.fstat(descriptor).st_uid != os.geteuid() or not _is_still_at(path, descriptor):
            return
        if not any(path.iterdir()):
            path.rmdir()
        elif not _may_be_at_work(path):
            shutil.rmtree(path)  # does not follow links
    finally:
        os.close(descriptor)


def _locked(path: Path) -> int:
    """A descriptor of the folder with its lock; OSError where it is no folder, is a link, or has an owner."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _is_still_at(path: Path, descriptor: int) -> bool:
    return os.path.samestat(os.fstat(descriptor), path.lstat())


def _may_be_at_work(path: Path) -> bool:
    """Whether a measuring client that outlived its daemon may still read its code there: it drains before it leaves."""
    if not Processes().sees_host_pids():
        return True
    ours = os.fsencode(path)
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # gone meanwhile
            if ours in process.read_bytes():
                return True
    return False
