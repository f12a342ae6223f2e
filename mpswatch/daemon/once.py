"""One look, or one sweep, without the daemon: for the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpswatch.archive import ArchiveError
from mpswatch.daemon.events import Target
from mpswatch.daemon.fault_logs import known_fault_age
from mpswatch.daemon.parts import Parts, runtime
from mpswatch.daemon.pause import is_paused
from mpswatch.daemon.sweeps import Attempt, Outcome, refused, sweep_targets
from mpswatch.daemon.targets import targets
from mpswatch.documents import Event, Fact, InterferenceDocument, PollSnapshot, Reason, SweepDocument
from mpswatch.errors import MpswatchError
from mpswatch.process.bundle import client_zipapp
from mpswatch.record import DURABLE_EVENTS
from mpswatch.sweep.permit import Refusal
from mpswatch.sweep.ports import Watcher
from mpswatch.sweep.stop import Stop


class NoSuchTargetError(MpswatchError):
    """The daemon or GPU that was named is not there."""


@dataclass(frozen=True)
class Swept:
    """How it went: one outcome a target, the files that were written, and what kept others from being written."""

    outcomes: tuple[Outcome, ...]
    written: tuple[Path, ...] = ()
    faults: tuple[ArchiveError, ...] = ()


def sweep_once(
    parts: Parts,
    snapshot: PollSnapshot,
    *,
    trigger: str,
    stop: Stop,
    progress: Watcher,
    work_directory: Path,
    plan: str = "quick",
    daemon: str | None = None,
    gpu: str | None = None,
    log: Callable[..., Any] = lambda _event, **_fields: None,
) -> Swept:
    """Measure what `snapshot` shows, limited to `daemon` (name) and `gpu` (UUID or its beginning) where given.

    `plan` is quick, thorough or interference.
    Raises `ArchiveError` before anything is measured where the result could not be kept.
    """
    parts.archive.prepare()
    unwritable = parts.archive.writable()
    if unwritable is not None:
        raise unwritable
    aims = _chosen(targets(snapshot), daemon, gpu)
    if is_paused(parts.archive.directory):
        refusal = Refusal(reason=Reason.PAUSED, detail="sweeps are paused", remedy="mpswatch resume")
        events = tuple(refused(parts, target, refusal, trigger, plan) for target in aims)
        for event in events:
            parts.journal.append(event)
        return Swept(events)
    written: list[Path] = []
    faults: list[ArchiveError] = []

    def record(fact: Fact) -> tuple[str, ...]:
        try:
            if isinstance(fact, SweepDocument):
                written.append(parts.archive.write(fact))
            elif isinstance(fact, InterferenceDocument):
                written.append(parts.interferences.write(fact))
            elif isinstance(fact, Event):
                parts.journal.append(fact, durable=fact.kind in DURABLE_EVENTS)
        except ArchiveError as error:
            faults.append(error)
            return ("archive",)
        return ()

    earlier = parts.journal.read(limit=200)

    logs = parts.fault_logs.look()

    def last_fault_age(name: str) -> float | None:
        return known_fault_age(earlier, logs, name)

    attempt = Attempt(
        trigger=trigger,
        plan=plan,
        targets=aims,
        stop=stop,
        runtime=runtime(parts.config, client_zipapp(work_directory), simulated=parts.simulated),
        record=record,
        may_start_unrecorded=False,
        last_fault_age=last_fault_age,
        progress=progress,
        log=log,
    )
    outcomes = sweep_targets(parts, attempt)
    return Swept(outcomes, tuple(written), tuple(faults))


def _chosen(found: tuple[Target, ...], daemon: str | None, gpu: str | None) -> tuple[Target, ...]:
    chosen = tuple(
        target
        for target in found
        if (daemon is None or target.daemon == daemon) and (gpu is None or target.gpu_uuid.startswith(gpu))
    )
    if not chosen:
        listed = "; ".join(f"{target.gpu_uuid or 'no GPU'} under {target.daemon}" for target in found)
        raise NoSuchTargetError(
            Reason.NO_GPU, f"nothing to sweep for --daemon {daemon} --gpu {gpu}", f"there is {listed}"
        )
    return chosen
