"""How each run stands against its own history: found in a thread of its own, because it reads the archive."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from mpswatch.archive import Archive, ArchiveError
from mpswatch.daemon.said import Said
from mpswatch.daemon.worker import Worker
from mpswatch.documents import Fact, HistoryLook, SweepDocument
from mpswatch.errors import MpswatchError
from mpswatch.history import BEGAN, ENDED, Subject, lasting, look_back, turns
from mpswatch.journal import Journal
from mpswatch.latest import Target

_MOST = 50
_WORTH_A_LINE = {"below", "above", "explained"}


class Judged(NamedTuple):
    """How a run stands, when it began, and (with the first that is judged) what the journal says still lasts.

    `lasting` is None where the journal could not be read.
    """

    look: HistoryLook
    started: datetime
    lasting: dict[Subject, str] | None


class Judging:
    """Judges runs one after another. To be called in the loop's own thread; `record` takes each `HistoryLook`, and an
    event where a cap begins to stand otherwise than usual, or ends to."""

    def __init__(
        self,
        *,
        archive: Callable[[], Archive],
        journal: Callable[[], Journal],
        worker: Worker[Judged],
        record: Callable[[Fact], object],
        log: Any,  # noqa: ANN401 - structlog's loggers are proxies
    ) -> None:
        self._archive = archive
        self._journal = journal
        self._worker = worker
        self._record = record
        self._log = log
        self._said = Said()
        self._waiting: deque[SweepDocument] = deque(maxlen=_MOST)
        self._lasting: dict[Subject, str] | None = None
        self._newest: dict[Target, datetime] = {}

    def judge(self, runs: Iterable[object]) -> None:
        """Take what was just recorded; how the newest run of each target among it stands is recorded soon."""
        newest: dict[Target, SweepDocument] = {}
        for run in sorted((run for run in runs if isinstance(run, SweepDocument) and run.run_id), key=_started):
            newest[_target(run)] = run
        self._waiting.extend(newest.values())
        self._go_on()

    def _go_on(self) -> None:
        if not self._waiting or self._worker.busy_seconds is not None:
            return
        run, archive = self._waiting.popleft(), self._archive()
        journal = self._journal() if self._lasting is None else None

        def in_the_workers_thread() -> Judged:
            look = look_back(archive, run, now=datetime.now(UTC))
            return Judged(look, _started(run), _read(journal, look) if journal is not None else None)

        self._worker.offer(in_the_workers_thread, self._found, self._failed)

    def _found(self, judged: Judged) -> None:
        look = judged.look
        self._said.is_new("history", None)
        self._record(look)
        if self._lasting is None:
            self._lasting = judged.lasting
        target = Target(look.daemon, look.gpu_uuid, look.plan)
        if self._lasting is not None and judged.started >= self._newest.get(target, judged.started):
            self._newest[target] = judged.started
            self._lasting, events = turns(look, self._lasting)
            for event in events:
                self._record(event)
        for cap in look.caps:
            subject = f"{look.daemon} {look.gpu_uuid} {look.plan} {cap.cap} {cap.quantity}"
            if self._said.is_new(subject, cap.standing if cap.standing in _WORTH_A_LINE else None):
                self._log.warning(
                    "a cap stands otherwise than before",
                    standing=cap.standing,
                    daemon=look.daemon,
                    gpu=look.gpu_uuid,
                    plan=look.plan,
                    cap=cap.cap,
                    quantity=cap.quantity,
                    tflops=cap.tflops,
                    usual=cap.median,
                    by=", ".join(cap.explained_by) or None,
                )
        self._go_on()

    def _failed(self, error: Exception) -> None:
        if self._said.is_new("history", str(error)):
            known = isinstance(error, MpswatchError)
            self._log.error("history is not known", detail=str(error), exc_info=None if known else error)
        self._go_on()


def _started(run: SweepDocument) -> datetime:
    return run.started_at or run.recorded_at


def _target(run: SweepDocument) -> Target:
    uuid = run.gpu.uuid if run.gpu is not None else ""
    return Target(run.mps.daemon if run.mps is not None else "", uuid, run.protocol.plan)


def _read(journal: Journal, look: HistoryLook) -> dict[Subject, str] | None:
    try:
        return lasting(journal.of({BEGAN, ENDED}), simulated=look.simulated)
    except ArchiveError:
        return None  # nothing is said before it is known what was said
