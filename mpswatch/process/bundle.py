"""The measuring client as one file that any interpreter with torch can run, in a container without mpswatch too."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import zipfile
from importlib import resources
from pathlib import Path

_PACKAGE = "mpswatch_client"
_ENTRY = f"from {_PACKAGE}.launcher import main\n\nmain()\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def client_zipapp(directory: Path) -> Path:
    """Write the client into `directory` as `mpswatch-client-HASH.pyz` (if it is not there yet) and return its path.

    The name follows from the content, so a file in use is never written over. Run it as
    `PYTHON -B FILE --backend torch --pipe-directory DIR`. Raises OSError where the directory cannot be written.
    """
    content = client_bytes()
    path = directory.absolute() / f"mpswatch-client-{hashlib.sha256(content).hexdigest()[:12]}.pyz"
    if not path.exists():
        fd, temporary = tempfile.mkstemp(dir=directory, prefix=".mpswatch-client-")
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(content)
            Path(temporary).chmod(0o644)  # a container's user reads it too
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    return path


def client_bytes() -> bytes:
    """The zipapp's bytes, the same for the same source."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr(zipfile.ZipInfo("__main__.py", _EPOCH), _ENTRY)
        sources = (entry for entry in resources.files("mpswatch.client").iterdir() if entry.name.endswith(".py"))
        for source in sorted(sources, key=lambda entry: entry.name):
            bundle.writestr(zipfile.ZipInfo(f"{_PACKAGE}/{source.name}", _EPOCH), source.read_bytes())
    return buffer.getvalue()
