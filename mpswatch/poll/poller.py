"""Asks all sources side by side, each in a thread and by a deadline of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import msgspec

from mpswatch import mps
from mpswatch.documents import (
    Conditions,
    DaemonLook,
    GpuLook,
    PollSnapshot,
    Reason,
    SourceLook,
    SystemMemory,
    Tenant,
    WaitingClient,
)
from mpswatch.errors import MpswatchError
from mpswatch.expectations import Expectations
from mpswatch.gpu import GpuSource, conditions_unknown
from mpswatch.identity import Identities, Known
from mpswatch.mps.control_log import ControlLog
from mpswatch.poll import looks
from mpswatch.poll.asked import Asked
from mpswatch.poll.blindness import sighted
from mpswatch.poll.limits import Limits
from mpswatch.poll.looks import DaemonAddress, Gpus, Look
from mpswatch.poll.patterns import Patterns
from mpswatch.proc import Identity, Processes, ProcessGone
from mpswatch.process.watched import Question, Watched
from mpswatch.tenants import tell_apart

GRACE = 0.5
"""Seconds that a source has beyond its own deadline before it counts as stuck: it should have ended by itself."""

PROC_DEADLINE = 2.0

IDENTITY_DEADLINE = 2.0
"""Beyond /proc, an identity takes files of the container runtimes: a home on a network may hang, and names only."""

LOG_DEADLINE = 1.0


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
        identities: Identities | None = None,
        expectations: Expectations = Expectations(),  # noqa: B008 - frozen
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._host = host
        self._asked: dict[str, Asked] = {}
        self._program = control_program
        self._sources = tuple(sources)
        self._processes = processes
        self._mps_deadline = mps_deadline
        self._gpu_deadline = gpu_deadline
        self._who = identities or Identities(processes, label_keys=expectations.label_keys)
        self._patterns = Patterns(expectations)
        self._clock = clock
        self._one_at_a_time = threading.Lock()
        self._limits = Limits()
        self._tenants: tuple[Tenant, ...] = ()
        self._identities_before: dict[int, Identity] = {}
        self._doubts: set[object] = set()
        self._watched_sources = [Watched(source.name) for source in self._sources]
        self._watched_conditions = [Watched(f"{source.name} (conditions)") for source in self._sources]
        self._watched_proc = Watched("proc")
        self._watched_identity = Watched("identity")
        self.watch(daemons)

    def watch(self, daemons: Sequence[DaemonAddress]) -> None:
        """Look at these control daemons from now on; what is known of those that stay is kept."""
        before = self._asked
        self._asked = {
            address.name: kept
            if (kept := before.get(address.name)) is not None and kept.address == address
            else Asked(address)
            for address in daemons
        }
        self._limits.keep(self._asked)

    def look(self) -> PollSnapshot:
        """A fresh snapshot. Does not raise for anything outside: what is not known says so.

        The lists are read one after the other, and clients come and go meanwhile. So whoever newly seems foreign,
        gone or in disagreement, and a list that lacks everybody, is looked at once more before anybody says so.
        """
        with self._one_at_a_time:
            started_at = self._clock()
            look = self._once()
            if look.all_answered() and look.doubtful() - self._doubts:
                look = self._once()
            self._doubts = look.doubtful()
            self._tenants = looks.remembered(look, self._tenants)
            total, available = self._processes.memory()
            return looks.snapshot(
                look,
                system_memory=SystemMemory(total_bytes=total, available_bytes=available),
                host=self._host,
                simulated=any(mps.is_rehearsal(asked.address.pipe_directory) for asked in self._asked.values()),
                started_at=started_at,
                finished_at=self._clock(),
            )

    def look_at_daemon(self, name: str, *, with_contexts: bool = False) -> DaemonLook:
        """One control daemon alone, on one connection: a sweep's own looks between two polls."""
        asked = self._asked.get(name)
        if asked is None:
            raise ValueError(f"no control daemon is called {name!r}")
        look, _ = self._ask(asked, asked.for_sweep, with_contexts=with_contexts)()
        return self._with_waiting(look, asked.log, asked.log_for_sweep)

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
        """All sources side by side: the daemons in threads, the GPUs in this one.

        Only the very first time the GPUs come first: for them the daemons are asked what limits they set.
        """
        gpus = None
        if self._limits.gpus is None:
            gpus = self._gpus()
            self._limits.see(gpus.looks)
        asked = list(self._asked.values())
        answers = [self._ask(one, one.watched, with_contexts=True) for one in asked]
        gpus = gpus or self._gpus()
        self._limits.see(gpus.looks)
        found = [answer() for answer in answers]  # each comes by its own deadline
        daemons = tuple(
            (self._with_waiting(self._limits.complete(look), one.log, one.watched_log), source)
            for one, (look, source) in zip(asked, found, strict=True)
        )
        seen = tuple(look for look, _ in daemons)
        if gpus.looks is not None:
            gpus = replace(gpus, looks=sighted(seen, gpus.looks))
        identities, proc = self._identities(seen, gpus.looks or ())
        tenants, disagreements = tell_apart(
            daemons=seen,
            gpus=gpus.looks or (),
            identities=identities,
            previous=self._tenants,
            now=self._clock(),
            identity_reason=proc.reason or Reason.PROCESS_GONE,
        )
        known, reason = self._known(identities, tenants)
        tenants = looks.identified(tenants, known, reason)
        tenants = self._patterns.mark(tenants, known)
        return Look(daemons, gpus, proc, tenants, disagreements, self._patterns.what, reason)

    def _known(
        self, identities: Mapping[int, Identity], tenants: Sequence[Tenant]
    ) -> tuple[dict[int, Known], Reason | None]:
        wanted = {t.pid: identities[t.pid] for t in tenants if t.kind != "ours" and t.pid in identities}
        try:
            return self._watched_identity.call(lambda: self._who.of(wanted), IDENTITY_DEADLINE), None
        except Exception as error:  # noqa: BLE001 -- without identities the figures are right all the same
            return {}, looks.reason_of(error)

    def _with_waiting(self, look: DaemonLook, log: ControlLog | None, watched: Watched) -> DaemonLook:
        """`look` with who waits for another server, where control.log can be read."""
        if log is None or look.servers.value is None or look.protocol == "3":  # whose log says it in other words
            reason = Reason.NOT_RECORDED if log is None else look.up_reason or Reason.DAEMON_SILENT
            reason = Reason.PROTOCOL_UNSUPPORTED if look.protocol == "3" else reason
            return msgspec.structs.replace(look, unknown={**look.unknown, "waiting": reason})
        servers = look.servers.value
        server = servers[0] if len(servers) == 1 else None
        try:
            waiting = watched.call(
                lambda: log.look(
                    server=server.pid if server else None,
                    server_uid=server.uid if server else None,
                    multi_user=server.multi_user if server else None,
                ),
                LOG_DEADLINE,
            )
        except Exception as error:  # noqa: BLE001 -- one source's fault, ours included, takes nothing else down
            return msgspec.structs.replace(look, unknown={**look.unknown, "waiting": looks.reason_of(error)})
        if server is not None and server.start_ticks is not None:  # its pids are those of our own /proc
            here = tuple(client for client in waiting.clients if not client.pid or self._is_there(client))
            waiting = msgspec.structs.replace(waiting, clients=here)
        return msgspec.structs.replace(look, waiting=waiting)

    def _is_there(self, client: WaitingClient) -> bool:
        try:
            uid = self._processes.identity(client.pid).uid
        except ProcessGone as error:
            return error.reason is not Reason.PROCESS_GONE
        return uid is None or uid == client.uid

    def _ask(
        self, asked: Asked, watched: Watched, *, with_contexts: bool
    ) -> Callable[[], tuple[DaemonLook, SourceLook]]:
        """Begin to ask one control daemon; what is returned waits for its answer, and does not raise."""
        # Named one by one: a question that held `asked` would keep its own thread from ending with it.
        began, address, known = time.monotonic(), asked.address, asked.servers
        # A sweep's own looks are about its client alone.
        gpus, limits_due = (self._limits.gpus, self._limits.due(address.name)) if with_contexts else (None, False)
        try:
            question = watched.begin(
                lambda: mps.look(
                    name=address.name,
                    pipe_directory=address.pipe_directory,
                    known_servers=known,
                    program=self._program,
                    deadline=self._mps_deadline,
                    processes=self._processes,
                    with_contexts=with_contexts,
                    gpus=gpus,
                    limits_due=limits_due,
                    clock=self._clock,
                )
            )
        except MpswatchError as stuck:
            source = looks.failed("mps", address.name, began, stuck)
            unknown = looks.daemon_unknown(address, source, self._clock())
            return lambda: (unknown, source)
        return lambda: self._answer(asked, question, began)

    def _answer(
        self, asked: Asked, question: Question[tuple[DaemonLook, SourceLook]], began: float
    ) -> tuple[DaemonLook, SourceLook]:
        address = asked.address
        try:
            look, source = question.result(self._mps_deadline + GRACE)
        except Exception as error:  # noqa: BLE001 -- one source's fault, ours included, takes nothing else down
            source = looks.failed("mps", address.name, began, error)
            return looks.daemon_unknown(address, source, self._clock()), source
        if look.servers.value is not None:
            asked.servers = tuple(server.pid for server in look.servers.value)
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
