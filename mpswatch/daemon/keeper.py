"""The one thread that touches archive and journal: a disk that hangs holds up nothing but itself."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

from mpswatch.documents import Event, Fact, InterferenceDocument, Reason, SweepDocument
from mpswatch.errors import MpswatchError

Kept: TypeAlias = Event | SweepDocument | InterferenceDocument
"""What is written to the disk; polls are not."""

_MOST_JOBS = 1000
_MOST_UNWRITTEN = 50


class KeepingError(MpswatchError):
    """A fact could not be kept in time."""


class _Job:
    def __init__(self, do: Callable[[], None]) -> None:
        self.do = do
        self.done = threading.Event()
        self.error: Exception | None = None


class Keeper:
    """Takes facts from any thread and keeps them in order; `keep` is the sink that writes (`record.archiving`).

    A run that could not be written is tried again (`try_again`): a disk that was full for an hour loses nothing.
    `failed(fact, error)` is called from the keeper's thread for each fact that was not written at once.
    """

    def __init__(
        self, keep: Callable[[Fact], None], *, deadline: float, failed: Callable[[Fact, Exception], None]
    ) -> None:
        self.deadline = deadline
        self._keep = keep
        self._failed = failed
        self._jobs: collections.deque[_Job] = collections.deque()
        self._changed = threading.Condition()
        self._busy_since: float | None = None
        self._unwritten: collections.deque[Kept] = collections.deque(maxlen=_MOST_UNWRITTEN)
        threading.Thread(target=self._run, name="archive", daemon=True).start()

    def take(self, fact: Fact) -> None:
        """Keep `fact` soon; raises `KeepingError` when too much waits already."""
        if isinstance(fact, Kept):  # nothing else is kept
            self._put(_Job(lambda: self._write(fact)))

    def take_and_wait(self, fact: Fact) -> None:
        """Keep `fact` before returning; raises what went wrong, or `KeepingError` after the deadline."""
        if not isinstance(fact, Kept):
            return
        job = self._put(_Job(lambda: self._keep(fact)))
        if not job.done.wait(self.deadline):
            raise KeepingError(
                Reason.ARCHIVE_WRITE_FAILED, f"the archive took longer than {self.deadline:g} s", "see archive.deadline"
            )
        if job.error is not None:
            raise job.error

    def do(self, what: Callable[[], None]) -> None:
        """Run `what` in the keeper's thread, after what waits there already. It sees to its own errors."""
        self._put(_Job(what))

    def try_again(self) -> None:
        """Write the runs that could not be written before."""
        if self._unwritten and not self._jobs:
            self.do(self._write_the_rest)

    @property
    def late(self) -> bool:
        """Whether what is being done there takes longer than the deadline."""
        since = self._busy_since
        return since is not None and time.monotonic() - since > self.deadline

    def flush(self, deadline: float) -> bool:
        """Wait up to `deadline` seconds until everything taken is written; True when it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs and self._busy_since is None, deadline)

    def _put(self, job: _Job) -> _Job:
        with self._changed:
            if len(self._jobs) >= _MOST_JOBS:
                raise KeepingError(Reason.ARCHIVE_WRITE_FAILED, f"{_MOST_JOBS} facts wait for the archive already")
            self._jobs.append(job)
            self._changed.notify_all()
        return job

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy_since = None
                self._changed.notify_all()
                self._changed.wait_for(lambda: bool(self._jobs))
                job = self._jobs.popleft()
                self._busy_since = time.monotonic()
            try:
                job.do()
            except Exception as error:  # noqa: BLE001 - handed to whoever waits; the thread must live on
                job.error = error
            job.done.set()

    def _write(self, fact: Kept) -> None:
        try:
            self._keep(fact)
        except Exception as error:  # noqa: BLE001 - whatever it was, the fact is not kept, and that is said
            if not isinstance(fact, Event):
                self._unwritten.append(fact)
            self._failed(fact, error)

    def _write_the_rest(self) -> None:
        for _ in range(len(self._unwritten)):
            document = self._unwritten.popleft()
            self._write(document)
            if self._unwritten and self._unwritten[-1] is document:
                return
