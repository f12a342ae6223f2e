"""Runs as files: one JSON document a GPU and sweep, atomic and durable, retained by age and size.

A name carries everything that finding a run needs, so that listing 100,000 of them opens none:

    DIRECTORY/runs/HOST_GPU_YYYYmmddTHHMMSSZ_DAEMON_PLAN_RUNID[.simulated].json[.gz]

A run is written to a temporary file beside its place, synced, renamed, and the directory synced: under its
own name a file is complete or absent. The writer holds a lock (flock) on its temporary file, so that what
a crash left can be told from what another process is writing at this moment.

For the daemon: `prepare()` at the start, `write(document)`, `latest()`, `retain()` after a write, `usage()`,
`writable()` for doctor; `appeared.Appeared` for what other processes wrote. Everything raises `ArchiveError` alone.
"""

from mpswatch.archive.files import MAX_DOCUMENT_BYTES, REMEDIES, ArchiveError, read_run
from mpswatch.archive.names import RunEntry
from mpswatch.archive.store import Archive

__all__ = ["MAX_DOCUMENT_BYTES", "REMEDIES", "Archive", "ArchiveError", "RunEntry", "read_run"]
