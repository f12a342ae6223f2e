"""Files that runtimes wrote, read within bounds and believed only as what they should be."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mpswatch.names import shown

_MOST_BYTES = 4 << 20
_MOST_ENTRIES = 20000


def names(folder: Path) -> Iterable[str]:
    """The names in a folder, so many at most. Raises `OSError`."""
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number >= _MOST_ENTRIES:
                return
            yield entry.name


def json_object(path: Path) -> dict[str, Any]:
    """The JSON object in `path`. Raises `OSError`, or `ValueError` or `TypeError` where it is none."""
    content = any_json(path)
    if not isinstance(content, dict):
        raise TypeError(f"{path} holds no object")
    return content


def any_json(path: Path) -> Any:  # noqa: ANN401 - whatever JSON holds
    """As `json_object`, of whatever JSON it holds."""
    # A user's own podman writes below that user's home: no fifo must hold us up there, and no link lead us elsewhere.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise TypeError(f"{path} is no regular file")
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"{path} is longer than {_MOST_BYTES} bytes")
    return json.loads(data)


def text(holder: Mapping[str, Any], *keys: str) -> str | None:
    """The first of `keys` that holds a text, shown like any name that somebody else chose."""
    for key in keys:
        value = holder.get(key)
        if isinstance(value, str) and value:
            return shown(value)
    return None


def labels(holder: Mapping[str, Any]) -> dict[str, str]:
    """What of `holder` can be labels."""
    return {str(key): shown(value) for key, value in holder.items() if isinstance(value, str)}
