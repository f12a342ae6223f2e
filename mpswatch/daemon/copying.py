"""Runs copied to a remote target by a short program at intervals; old runs are removed once it has them all."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from mpswatch.archive import Archive
from mpswatch.config import Config
from mpswatch.daemon.facts import Facts
from mpswatch.daemon.said import Said
from mpswatch.daemon.worker import Worker
from mpswatch.errors import MpswatchError
from mpswatch.process.ask import ask

GRACE = 30.0
"""Seconds beyond its own deadline after which the program is ended: its target hangs."""

LOOK_BACK = timedelta(days=2)
"""Once everything is there, only runs started since then are looked for: a run is archived long before that is over."""

FULL_LOOK_EVERY = 86400.0
"""Seconds after which everything is looked for again, in case the target lost something."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """How one round of copying ended: `missing` is None where it could not tell, `fault` None when all is there.

    `looked` is False where there was no run to look for: the target was not asked anything then.
    """

    copied: int
    missing: int | None
    fault: str | None
    looked: bool


class Report(msgspec.Struct, frozen=True):
    """What `python -m mpswatch.remote` prints; more keys may come."""

    runs: int
    copied: int
    missing: int
    error: str | None


class Copying:
    """`trigger` starts a round in the worker's thread, unless one is running or no target is configured."""

    def __init__(self, *, config: Config, archive: Archive, worker: Worker[Round], facts: Facts, log: Any) -> None:  # noqa: ANN401 - structlog's proxy
        self._config = config
        self._archive = archive
        self._worker = worker
        self._facts = facts
        self._log = log
        self._said = Said()
        self._complete_at: datetime | None = None
        self._full_look: float | None = None
        if self.configured:
            facts.latest.expect_remote()

    @property
    def configured(self) -> bool:
        return self._config.archive.remote.url is not None

    def trigger(self) -> None:
        """Copy what is missing there. To be called in the loop."""
        if not self.configured:
            return
        now, since = time.monotonic(), None
        recent = self._full_look is not None and now - self._full_look < FULL_LOOK_EVERY
        if self._complete_at is not None and recent:
            since = self._complete_at - LOOK_BACK
        began = datetime.now(UTC)
        self._worker.offer(lambda: copy(self._config, since=since), self._done(began, full=since is None), self._failed)

    def _done(self, began: datetime, *, full: bool) -> Callable[[Round], None]:
        def done(ended: Round) -> None:
            seen_at = datetime.now(UTC) if ended.looked else None
            self._facts.latest.remote_copied(seen_at, missing=ended.missing, fault=ended.fault)
            if ended.fault is None:
                self._complete_at = began
                self._full_look = time.monotonic() if full else self._full_look
                self._facts.keeper.do(self._retain)
            if self._said.is_new("remote", ended.fault):
                if ended.fault is not None:
                    self._log.warning(
                        "runs are not copied to the remote target", missing=ended.missing, detail=ended.fault
                    )
                else:
                    self._log.info("the remote target has every run", copied=ended.copied)

        return done

    def _failed(self, error: Exception) -> None:
        self._facts.latest.remote_copied(None, missing=None, fault=str(error))
        self._log.error("copying to the remote target failed", exc_info=error)

    def _retain(self) -> None:
        try:
            self._archive.retain(datetime.now(UTC))
            self._facts.latest.archive_measured(self._archive.usage())
        except MpswatchError as error:
            self._log.warning("old runs could not be removed", detail=error.detail, remedy=error.remedy)


def copy(config: Config, *, since: datetime | None = None) -> Round:
    """Run one round. Whatever the target or its back end does, the outcome is a `Round`."""
    remote = config.archive.remote
    if remote.url is None:
        raise ValueError("no target is configured")
    argv = [sys.executable, "-P", "-m", "mpswatch.remote", str(Path(config.archive.directory).absolute()), remote.url]
    argv += ["--deadline", str(remote.deadline)]
    if since is not None:
        argv += ["--since", since.isoformat()]
    try:
        answer = ask(argv, deadline=remote.deadline + GRACE)
    except MpswatchError as error:
        return Round(copied=0, missing=None, fault=error.detail, looked=False)
    try:
        report = msgspec.json.decode(answer.stdout, type=Report)
    except msgspec.MsgspecError:
        said = answer.stderr.decode("utf-8", "replace").strip().splitlines()
        return Round(
            copied=0, missing=None, fault=said[-1] if said else f"it ended with {answer.returncode}", looked=False
        )
    fault = report.error if report.missing else None
    return Round(copied=report.copied, missing=report.missing, fault=fault, looked=report.runs > 0)
