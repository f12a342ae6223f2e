"""Where labels of containers would be read here, and whether they may be."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from mpswatch.identity import containerd, runtimes


@dataclass(frozen=True, slots=True)
class LabelSource:
    """One runtime's place. `fault` is why nothing can be read there, None where it can."""

    runtime: str
    path: Path
    fault: str | None


def label_sources(root: Path) -> tuple[LabelSource, ...]:
    """The places that are there below `root`, or that may not even be looked for."""
    places = [
        ("containerd", root / store / containerd.DATABASE) for stores in containerd.PLACES.values() for store in stores
    ]
    places.append(("docker", root / runtimes.DOCKER))
    places += [("CRI-O", root / storage / "overlay-containers") for storage in runtimes.STORAGE]
    found = ((runtime, path, _fault(path)) for runtime, path in places)
    return tuple(LabelSource(runtime, path, fault or None) for runtime, path, fault in found if fault is not None)


def _fault(path: Path) -> str | None:
    """Empty where it can be read, None where it is not there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return error.strerror or "cannot be read"
    os.close(descriptor)
    return ""
