"""How each run stands against its own history: found in a thread of its own, because it reads the archive."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from mpswatch.archive import Archive
from mpswatch.daemon.said import Said
from mpswatch.daemon.worker import Worker
from mpswatch.documents import Fact, HistoryLook, SweepDocument
from mpswatch.errors import MpswatchError
from mpswatch.history import look_back

_MOST = 50
_WORTH_A_LINE = {"below", "above", "explained"}


class Judging:
    """Judges runs one after another. To be called in the loop's own thread; `record` takes each `HistoryLook`."""

    def __init__(
        self,
        *,
        archive: Callable[[], Archive],
        worker: Worker[HistoryLook],
        record: Callable[[Fact], object],
        log: Any,  # noqa: ANN401 - structlog's loggers are proxies
    ) -> None:
        self._archive = archive
        self._worker = worker
        self._record = record
        self._log = log
        self._said = Said()
        self._waiting: deque[SweepDocument] = deque(maxlen=_MOST)

    def judge(self, runs: Iterable[object]) -> None:
        """Take what was just recorded; how the runs among it stand is recorded soon."""
        self._waiting.extend(run for run in runs if isinstance(run, SweepDocument) and run.run_id)
        self._go_on()

    def _go_on(self) -> None:
        if not self._waiting or self._worker.busy_seconds is not None:
            return
        run, archive = self._waiting.popleft(), self._archive()
        self._worker.offer(lambda: look_back(archive, run, now=datetime.now(UTC)), self._found, self._failed)

    def _found(self, look: HistoryLook) -> None:
        self._said.is_new("history", None)
        self._record(look)
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
