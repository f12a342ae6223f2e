"""One look at everything: all sources side by side, each with its deadline, joined into one snapshot.

A source that does not come back is named, is not asked again until it does, and takes nothing else down.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from mpswatch import mps
from mpswatch.documents import (
    Conditions,
    DaemonLook,
    Disagreement,
    Envelope,
    GpuLook,
    PollSnapshot,
    Reason,
    SourceLook,
    State,
    Tenant,
)
from mpswatch.errors import MpswatchError
from mpswatch.gpu import GpuSource, conditions_unknown
from mpswatch.proc import Identity, Processes
from mpswatch.process.watched import Watched
from mpswatch.tenants import clients_known, foreign_unknown, key, tell_apart

T = TypeVar("T")

GRACE = 0.5
"""Seconds that a source has beyond its own deadline before it counts as stuck: it should have ended by itself."""

PROC_DEADLINE = 2.0


@dataclass(frozen=True, kw_only=True)
class DaemonAddress:
    """Where a control daemon is found. `log_directory` is for its logs, where they are readable."""

    name: str
    pipe_directory: Path
    log_directory: Path | None = None


@dataclass(frozen=True, slots=True)
class _Gpus:
    looks: tuple[GpuLook, ...] | None
    source: str
    at: datetime
    reason: Reason | None
    details: dict[str, str]
    sources: tuple[SourceLook, ...]


@dataclass(frozen=True, slots=True)
class _Look:
    daemons: tuple[tuple[DaemonLook, SourceLook], ...]
    gpus: _Gpus
    proc: SourceLook
    tenants: tuple[Tenant, ...]
    disagreements: tuple[Disagreement, ...]

    def all_answered(self) -> bool:
        return self.gpus.looks is not None and self.proc.success and all(look.success for _, look in self.daemons)

    def doubtful(self) -> set[object]:
        """What a look in mid-change gets wrong: whoever seems foreign or gone, and lists that disagree."""
        found: set[object] = {(key(t), t.kind) for t in self.tenants if t.kind in {"foreign", "unresolved"}}
        for disagreement in self.disagreements:
            found.update((pid, "client") for pid in disagreement.only_in_client_list)
            found.update((pid, "driver") for pid in disagreement.only_in_driver_list)
        return found


class Poller:
    """Looks at control daemons, GPUs and processes. Every method may be called from any thread."""

    def __init__(
        self,
        *,
        host: str,
        daemons: Sequence[DaemonAddress],
        control_program: str,
        sources: Sequence[GpuSource],
        processes: Processes,
        mps_deadline: float,
        gpu_deadline: float,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._host = host
        self._daemons = tuple(daemons)
        self._program = control_program
        self._sources = tuple(sources)
        self._processes = processes
        self._mps_deadline = mps_deadline
        self._gpu_deadline = gpu_deadline
        self._clock = clock
        self._one_at_a_time = threading.Lock()
        self._servers: dict[str, tuple[int, ...]] = {}
        self._tenants: tuple[Tenant, ...] = ()
        self._identities_before: dict[int, Identity] = {}
        self._doubts: set[object] = set()
        # A sweep's own questions have threads of their own, so that a poll under way does not look like a stuck one.
        self._watched_daemons = {address.name: Watched(f"mps {address.name}") for address in self._daemons}
        self._watched_for_sweep = {address.name: Watched(f"mps {address.name} (sweep)") for address in self._daemons}
        self._watched_sources = [Watched(source.name) for source in self._sources]
        self._watched_conditions = [Watched(f"{source.name} (conditions)") for source in self._sources]
        self._watched_proc = Watched("proc")

    def look(self) -> PollSnapshot:
        """A fresh snapshot. Does not raise for anything outside: what is not known says so.

        The lists are read one after the other, and clients come and go meanwhile. So whoever newly seems foreign,
        gone or in disagreement is looked at once more before anybody says so.
        """
        with self._one_at_a_time:
            started_at = self._clock()
            look = self._once()
            if look.all_answered() and look.doubtful() - self._doubts:
                look = self._once()
            self._doubts = look.doubtful()
            snapshot = self._snapshot(look, started_at)
            self._tenants = self._remembered(look)
            return snapshot

    def look_at_daemon(self, name: str, *, with_contexts: bool = False) -> DaemonLook:
        """One control daemon alone, on one connection: a sweep's own looks between two polls."""
        address = next((address for address in self._daemons if address.name == name), None)
        if address is None:
            raise ValueError(f"no control daemon is called {name!r}")
        look, _ = self._daemon(address, self._watched_for_sweep[name], with_contexts=with_contexts)
        return look

    def conditions(self, uuid: str) -> Conditions:
        """What one GPU is doing now, from the first source that can say; all unknown when none can."""
        reason: Reason | None = None
        for source, watched in zip(self._sources, self._watched_conditions, strict=True):
            try:
                return watched.call(partial(source.conditions, uuid), self._gpu_deadline + GRACE)
            except Exception as error:  # noqa: BLE001 -- one source's fault, ours included, takes nothing else down
                reason = reason or _reason_of(error)
        return conditions_unknown(reason or Reason.NO_GPU, source=self._sources[0].name if self._sources else "")

    def _once(self) -> _Look:
        """All sources side by side: the daemons in threads, the GPUs in this one."""
        found: dict[str, tuple[DaemonLook, SourceLook]] = {}

        def ask(address: DaemonAddress) -> None:
            found[address.name] = self._daemon(address, self._watched_daemons[address.name], with_contexts=True)

        threads = [
            threading.Thread(target=ask, args=(address,), name=f"poll-{address.name}", daemon=True)
            for address in self._daemons
        ]
        for thread in threads:
            thread.start()
        gpus = self._gpus()
        for thread in threads:
            thread.join()  # each ends by its own deadline
        daemons = tuple(found[address.name] for address in self._daemons)
        looks = tuple(look for look, _ in daemons)
        identities, proc = self._identities(looks, gpus.looks or ())
        tenants, disagreements = tell_apart(
            daemons=looks,
            gpus=gpus.looks or (),
            identities=identities,
            previous=self._tenants,
            now=self._clock(),
            identity_reason=proc.reason or Reason.PROCESS_GONE,
        )
        return _Look(daemons, gpus, proc, tenants, disagreements)

    def _daemon(
        self, address: DaemonAddress, watched: Watched, *, with_contexts: bool
    ) -> tuple[DaemonLook, SourceLook]:
        began = time.monotonic()
        try:
            look, source = watched.call(
                lambda: mps.look(
                    name=address.name,
                    pipe_directory=address.pipe_directory,
                    known_servers=self._servers.get(address.name, ()),
                    program=self._program,
                    deadline=self._mps_deadline,
                    processes=self._processes,
                    with_contexts=with_contexts,
                    clock=self._clock,
                ),
                self._mps_deadline + GRACE,
            )
        except Exception as error:  # noqa: BLE001 -- one source's fault, ours included, takes nothing else down
            source = _failed("mps", address.name, began, error)
            return _daemon_unknown(address, source, self._clock()), source
        if look.servers.value is not None:
            self._servers[address.name] = tuple(server.pid for server in look.servers.value)
        return look, source

    def _gpus(self) -> _Gpus:
        """The first source that answers; the next one is asked only when it does not."""
        asked: list[SourceLook] = []
        for source, watched in zip(self._sources, self._watched_sources, strict=True):
            began = time.monotonic()
            try:
                looks = watched.call(source.look, self._gpu_deadline + GRACE)
            except Exception as error:  # noqa: BLE001 -- one source's fault, ours included, takes nothing else down
                asked.append(_failed(source.name, "", began, error))
                continue
            asked.append(
                SourceLook(source=source.name, daemon="", success=True, duration_seconds=time.monotonic() - began)
            )
            return _Gpus(looks, source.name, self._clock(), None, {}, tuple(asked))
        reason = asked[0].reason if asked else Reason.NO_GPU
        details = {look.source: look.detail or "" for look in asked}
        names = ", ".join(look.source for look in asked)
        return _Gpus(None, names, self._clock(), reason, details, tuple(asked))

    def _identities(
        self, daemons: Sequence[DaemonLook], gpus: Sequence[GpuLook]
    ) -> tuple[dict[int, Identity], SourceLook]:
        began = time.monotonic()
        pids = {process.pid for look in gpus for process in look.processes.value or ()}
        for look in daemons:
            for server in look.servers.value or ():
                pids.update(server.clients or ())
        try:
            found = self._watched_proc.call(
                lambda: self._processes.identities(sorted(pids), self._identities_before), PROC_DEADLINE
            )
        except Exception as error:  # noqa: BLE001 -- one source's fault, ours included, takes nothing else down
            return {}, _failed("proc", "", began, error)
        self._identities_before = found
        return found, SourceLook(source="proc", daemon="", success=True, duration_seconds=time.monotonic() - began)

    def _snapshot(self, look: _Look, started_at: datetime) -> PollSnapshot:
        simulated = any(mps.is_rehearsal(address.pipe_directory) for address in self._daemons)
        state: State = "simulated" if simulated else "measured"
        gpus = look.gpus
        looks = gpus.looks or ()
        unseen = foreign_unknown(looks, ())
        blind = next(iter(unseen.values())) if looks and len(unseen) == len(looks) else gpus.reason
        return PollSnapshot(
            host=self._host,
            started_at=started_at,
            finished_at=self._clock(),
            simulated=simulated,
            daemons=tuple(daemon for daemon, _ in look.daemons),
            gpus=_envelope(
                gpus.looks, state, source=gpus.source, at=gpus.at, evidence=dict(gpus.details), reason=gpus.reason
            ),
            tenants=_envelope(
                None if blind else look.tenants,
                state,
                source=f"nvidia-cuda-mps-control, {gpus.source}, proc",
                at=gpus.at,
                evidence={"gpus_unknown": unseen} if unseen else {},
                reason=blind,
            ),
            disagreements=look.disagreements,
            sources=(*(source for _, source in look.daemons), *gpus.sources, look.proc),
            foreign_unknown=foreign_unknown(looks, look.tenants),
        )

    def _remembered(self, look: _Look) -> tuple[Tenant, ...]:
        """The tenants seen, and those of the last look that this one could not have seen."""
        seen = {key(tenant) for tenant in look.tenants}
        gpus = {gpu.gpu.uuid for gpu in look.gpus.looks or () if gpu.processes.value is not None}
        daemons = {daemon.name for daemon, _ in look.daemons if clients_known(daemon)}
        unseen = tuple(
            tenant
            for tenant in self._tenants
            if key(tenant) not in seen
            and (tenant.daemon not in daemons if tenant.gpu_uuid is None else tenant.gpu_uuid not in gpus)
        )
        return look.tenants + unseen


def _reason_of(error: Exception) -> Reason:
    return error.reason if isinstance(error, MpswatchError) else Reason.INTERNAL_ERROR


def _failed(source: str, daemon: str, began: float, error: Exception) -> SourceLook:
    return SourceLook(
        source=source,
        daemon=daemon,
        success=False,
        duration_seconds=time.monotonic() - began,
        reason=_reason_of(error),
        detail=error.detail if isinstance(error, MpswatchError) else repr(error),
    )


def _daemon_unknown(address: DaemonAddress, source: SourceLook, at: datetime) -> DaemonLook:
    reason = source.reason or Reason.SOURCE_FAILED
    return DaemonLook(
        name=address.name,
        pipe_directory=str(address.pipe_directory),
        up=None,
        up_reason=reason,
        servers=_envelope(
            None,
            "unknown",
            source="nvidia-cuda-mps-control",
            at=at,
            evidence={"detail": source.detail or ""},
            reason=reason,
        ),
        unknown=dict.fromkeys(("protocol", "default_active_thread_percentage", "our_session"), reason),
    )


def _envelope(
    value: T | None, state: State, *, source: str, at: datetime, evidence: dict[str, object], reason: Reason | None
) -> Envelope[T]:
    return Envelope(
        value=value,
        state="unknown" if value is None else state,
        source=source,
        measured_at=at,
        evidence=evidence,
        unknown_reason=(reason or Reason.SOURCE_FAILED) if value is None else None,
    )
