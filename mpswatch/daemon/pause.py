"""`mpswatch pause` and `resume`: a file beside the archive, so that a pause survives a restart."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from mpswatch.documents import Reason
from mpswatch.errors import MpswatchError

FILE_NAME = "paused"


class PauseError(MpswatchError):
    """The pause file can be neither written nor removed."""


def is_paused(directory: Path) -> bool:
    """Whether somebody holds the scheduled sweeps. A directory that cannot be read holds nothing."""
    return os.path.lexists(directory / FILE_NAME)


def pause(directory: Path, by: str) -> bool:
    """Hold the scheduled sweeps from now on; False when they were held already. Raises `PauseError`."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot(directory, error) from None
    try:
        # 0640, as every file of the state directory
        descriptor = os.open(directory / FILE_NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f"paused {datetime.now(UTC).isoformat(timespec='seconds')} by {by}\n")
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        return False
    except OSError as error:
        raise _cannot(directory, error) from None
    return True


def resume(directory: Path) -> bool:
    """Let scheduled sweeps run again; False when they were not held. Raises `PauseError`."""
    try:
        (directory / FILE_NAME).unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _cannot(directory, error) from None
    return True


def _cannot(directory: Path, error: OSError) -> PauseError:
    return PauseError(
        Reason.PERMISSION,
        f"{directory / FILE_NAME}: {error.strerror}",
        "run as the daemon's user, or name its archive with --archive",
    )
