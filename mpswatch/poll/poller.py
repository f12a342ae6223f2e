"""Asks all sources side by side, each in a thread and by a deadline of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial

from mpswatch import mps
from mpswatch.documents import Conditions, DaemonLook, GpuLook, PollSnapshot, Reason, SourceLook, Tenant
from mpswatch.gpu import GpuSource, conditions_unknown
from mpswatch.poll import looks
from mpswatch.poll.looks import DaemonAddress, Gpus, Look
from mpswatch.proc import Identity, Processes
from mpswatch.process.watched import Watched
from mpswatch.tenants import tell_apart

GRACE = 0.5
"""Seconds that a source has beyond its own deadline before it counts as stuck: it should have ended by itself."""

PROC_DEADLINE = 2.0


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
            self._tenants = looks.remembered(look, self._tenants)
            return looks.snapshot(
                look,
                host=self._host,
                simulated=any(mps.is_rehearsal(address.pipe_directory) for address in self._daemons),
                started_at=started_at,
                finished_at=self._clock(),
            )

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
                reason = reason or looks.reason_of(error)
        return conditions_unknown(reason or Reason.NO_GPU, source=self._sources[0].name if self._sources else "")

    def _once(self) -> Look:
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
        seen = tuple(look for look, _ in daemons)
        identities, proc = self._identities(seen, gpus.looks or ())
        tenants, disagreements = tell_apart(
            daemons=seen,
            gpus=gpus.looks or (),
            identities=identities,
            previous=self._tenants,
            now=self._clock(),
            identity_reason=proc.reason or Reason.PROCESS_GONE,
        )
        return Look(daemons, gpus, proc, tenants, disagreements)

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
            source = looks.failed("mps", address.name, began, error)
            return looks.daemon_unknown(address, source, self._clock()), source
        if look.servers.value is not None:
            self._servers[address.name] = tuple(server.pid for server in look.servers.value)
        return look, source

    def _gpus(self) -> Gpus:
        """The first source that answers; the next one is asked only when it does not."""
        asked: list[SourceLook] = []
        for source, watched in zip(self._sources, self._watched_sources, strict=True):
            began = time.monotonic()
            try:
                found = watched.call(source.look, self._gpu_deadline + GRACE)
            except Exception as error:  # noqa: BLE001 -- one source's fault, ours included, takes nothing else down
                asked.append(looks.failed(source.name, "", began, error))
                continue
            asked.append(
                SourceLook(source=source.name, daemon="", success=True, duration_seconds=time.monotonic() - began)
            )
            return Gpus(found, source.name, self._clock(), None, {}, tuple(asked))
        reason = asked[0].reason if asked else Reason.NO_GPU
        details = {look.source: look.detail or "" for look in asked}
        names = ", ".join(look.source for look in asked)
        return Gpus(None, names, self._clock(), reason, details, tuple(asked))

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
            return {}, looks.failed("proc", "", began, error)
        self._identities_before = found
        return found, SourceLook(source="proc", daemon="", success=True, duration_seconds=time.monotonic() - began)
