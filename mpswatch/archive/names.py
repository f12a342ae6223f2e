"""Names of runs: everything that finding one needs, so that listing 100,000 of them opens none."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeAlias

from mpswatch.documents import InterferenceDocument, SweepDocument

_TIME = "%Y%m%dT%H%M%SZ"
_NAME = re.compile(
    r"(?P<host>[^_]+)_(?P<gpu>[^_]+)_(?P<time>\d{8}T\d{6}Z)_(?P<daemon>[^_]+)_(?P<plan>[^_]+)_(?P<run>[^_.]+)"
    r"(?P<simulated>\.simulated)?\.json(?:\.gz)?"
)


Series: TypeAlias = tuple[str, str, str, str]
"""What a run is one more of: host, GPU, daemon, plan."""


class RunEntry(NamedTuple):
    """A run as its file's name gives it, unopened. `gpu` is the uuid's first group; `daemon` has only [A-Za-z0-9.-]."""

    directory: Path
    name: str
    host: str
    gpu: str
    started: datetime
    daemon: str
    plan: str
    run_id: str
    simulated: bool

    @property
    def path(self) -> Path:
        return self.directory / self.name

    @property
    def series(self) -> Series:
        return (self.host, self.gpu, self.daemon, self.plan)


def plain(text: str) -> str:
    """Make one component of a name out of any text: [A-Za-z0-9.-], never empty, never starting with a dot."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-.")[:64] or "unknown"


def name_of(document: SweepDocument, *, compressed: bool) -> str:
    """Give the name that `document` is filed under."""
    parts = series_and_time(document, document.started_at or document.recorded_at)
    run = run_part(document.run_id or uuid.uuid4().hex[:12])
    return "_".join((*parts, plain(document.protocol.plan), run)) + ending_of(document, compressed=compressed)


def series_and_time(document: SweepDocument | InterferenceDocument, started: datetime) -> tuple[str, str, str, str]:
    """Give what every name begins with: host, the GPU's first group, the second of the start, the daemon."""
    gpu = "-".join(document.gpu.uuid.split("-")[:2]) if document.gpu is not None else "unknown"
    daemon = document.mps.daemon if document.mps is not None else document.pipe_directory
    return plain(document.host), plain(gpu), started.astimezone(UTC).strftime(_TIME), plain(daemon)


def run_part(run_id: str) -> str:
    """Give a run's id as a name has it: without a dot, which would begin the ending."""
    return plain(run_id.replace(".", "-"))


def ending_of(document: SweepDocument | InterferenceDocument, *, compressed: bool) -> str:
    """Give what every name ends with."""
    return (".simulated" if document.simulated else "") + ".json" + (".gz" if compressed else "")


def is_run_name(name: str) -> bool:
    """Say whether mpswatch gives such names to runs."""
    return _NAME.fullmatch(name) is not None


def entry_of(directory: Path, name: str) -> RunEntry | None:
    """Read a name; None for a file that no mpswatch named."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    try:
        started = _time(match["time"])
    except ValueError:
        return None
    simulated = match["simulated"] is not None
    return RunEntry(
        directory, name, match["host"], match["gpu"], started, match["daemon"], match["plan"], match["run"], simulated
    )


def newest_first(names: Iterable[str]) -> list[str]:
    """Sort names of runs without reading them further; what cannot be one is left out."""
    found = sorted((name for name in names if name.count("_") == 5), reverse=True)
    found.sort(key=lambda name: name.split("_", 3)[2], reverse=True)  # stable: the same second stays sorted by name
    return found


def series_of(name: str) -> Series:
    """Give the series of a name that `newest_first` let through."""
    host, gpu, _, daemon, plan, _ = name.split("_")
    return (host, gpu, daemon, plan)


def _time(text: str) -> datetime:
    """Read YYYYmmddTHHMMSSZ: strptime takes eight times as long, which 100,000 names feel."""
    date, clock = text[:8], text[9:15]
    return datetime(
        int(date[:4]), int(date[4:6]), int(date[6:]), int(clock[:2]), int(clock[2:4]), int(clock[4:]), tzinfo=UTC
    )
