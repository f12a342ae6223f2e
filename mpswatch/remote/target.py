"""The other end: an fsspec file system, asked for what it holds and given files that are whole or absent."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec

PARTIAL = ".part"
"""Ending of a file that is still on its way."""

PUTS_WHOLE = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "memory"})
"""Protocols whose put is complete or absent. To others a file goes under a name of its own and is then renamed."""


class UnusableTarget(Exception):  # noqa: N818 -- says what it is, and reads so where it is caught
    """A URL that no installed back end can open; the message says what to do."""


class Target:
    """A folder at `url`. Methods raise whatever the back end raises: every back end has errors of its own."""

    def __init__(self, url: str) -> None:
        try:
            self._files, self._root = fsspec.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise UnusableTarget(f"{shown(url)}: {error}") from error
        protocols = {self._files.protocol} if isinstance(self._files.protocol, str) else set(self._files.protocol)
        self._puts_whole = bool(protocols & PUTS_WHOLE)

    def sizes(self, folder: str) -> dict[str, int]:
        """Names of the files in `folder` with their bytes; a folder that is not there is empty."""
        try:
            found: list[dict[str, Any]] = self._files.ls(self._path(folder), detail=True, refresh=True)
        except FileNotFoundError:
            return {}
        return {
            str(item["name"]).rstrip("/").rsplit("/", 1)[-1]: int(item["size"] or 0)
            for item in found
            if item["type"] == "file"
        }

    def put(self, local: Path, folder: str) -> None:
        """Copy `local` into `folder`; under its name there it is complete or absent. Raises OSError when cut short."""
        place = self._path(f"{folder}/{local.name}")
        size = local.stat().st_size
        if not self._puts_whole:
            self._files.makedirs(self._path(folder), exist_ok=True)
        under_way = place if self._puts_whole else place + PARTIAL
        self._files.put_file(str(local), under_way)
        arrived = self._files.info(under_way)["size"]
        if arrived != size:
            raise OSError(f"{arrived} of {size} bytes arrived")
        if under_way != place:
            self._files.mv(under_way, place)

    def _path(self, folder: str) -> str:
        return f"{self._root.rstrip('/')}/{folder}"


def shown(url: str) -> str:
    """`url` without the user and password that may stand in it, for reports and logs."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return re.sub(r"//[^/]*@", "//", url, count=1)
