"""Who is who on a GPU: a pure join of the control daemons' lists, the driver's lists and /proc.

Five kinds. A *server* is in a daemon's server list. *Ours* are the processes of the session that holds the lock on a
pipe directory. *Managed* is a client of any configured daemon. *Foreign* is everybody else, and *unresolved* whoever
cannot be told: the process is gone, or a daemon could not be asked and the driver does not say either. So while a
daemon is silent `foreign_unknown` names the reason why there is no foreign figure, or it is a lower bound: whom the
driver books to MPS is unresolved, being most likely that daemon's client, but it may be one of a daemon unwatched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from mpswatch.documents import DaemonLook, Disagreement, GpuLook, GpuProcess, Reason, ServerLook, Tenant, TenantKind
from mpswatch.names import shown
from mpswatch.proc import Identity

Key = tuple[int, int | None, str | None]
"""What a tenant is known by: pid, start ticks, GPU uuid."""

_SERVER_COMMAND = "nvidia-cuda-mps"


@dataclass(slots=True)
class _Daemons:
    """What all control daemons together said.

    `unclear` is why somebody's clients are not all known. `sessions` are ours; `session_unclear` is why it is not
    known whether a daemon's clients are ours.
    """

    servers: dict[int, tuple[str, int | None]] = field(default_factory=dict)
    clients: dict[int, str] = field(default_factory=dict)
    sessions: dict[int, str] = field(default_factory=dict)
    session_unclear: dict[str, Reason] = field(default_factory=dict)
    unclear: Reason | None = None


@dataclass(frozen=True, slots=True)
class _Verdict:
    kind: TenantKind
    daemon: str | None = None
    reason: Reason | None = None


def key(tenant: Tenant) -> Key:
    """What identifies a tenant between two looks."""
    return (tenant.pid, tenant.start_ticks, tenant.gpu_uuid)


def tell_apart(
    *,
    daemons: Sequence[DaemonLook],
    gpus: Sequence[GpuLook],
    identities: Mapping[int, Identity],
    previous: Sequence[Tenant],
    now: datetime,
    identity_reason: Reason = Reason.PROCESS_GONE,
) -> tuple[tuple[Tenant, ...], tuple[Disagreement, ...]]:
    """The tenants of all GPUs, and where the client lists and the driver's MPS lists differ.

    `identities` are those of the pids in any list; a pid without one is taken as gone (`identity_reason`).
    `previous` are the tenants of the last look: since when they are seen, and who was a server or foreign
    while a daemon that has gone silent still answered.
    """
    join = _Join(
        said=_said(daemons),
        identities=identities,
        before={key(tenant): tenant for tenant in previous},
        now=now,
        identity_reason=identity_reason,
    )
    tenants = [join.tenant(row, look.gpu.uuid) for look in gpus for row in look.processes.value or ()]
    seen = {tenant.pid for tenant in tenants}
    missing = _gpu_reason(gpus)
    for pid in sorted(join.said.clients.keys() - seen):
        row = GpuProcess(
            pid=pid,
            used_memory_bytes=None,
            memory_unknown_reason=missing or Reason.NOT_RECORDED,
            mps_client=None if missing else False,
        )
        tenants.append(join.tenant(row, None))
    return tuple(tenants), _disagreements(daemons, gpus, identities, join.said, missing)


def foreign_unknown(gpus: Sequence[GpuLook], tenants: Iterable[Tenant]) -> dict[str, Reason]:
    """The GPUs whose foreign tenants are not all known, with the reason.

    A process that is gone from /proc makes no foreign figure wrong, and one that the driver books to MPS leaves it a
    lower bound; a process of which nobody at all can say whether it is managed makes it unknown.
    """
    unknown: dict[str, Reason] = {}
    for look in gpus:
        if look.processes.value is None:
            unknown[look.gpu.uuid] = _as_reason(look.processes.unknown_reason)
    for tenant in tenants:
        reason = tenant.unknown.get("kind")
        if (
            tenant.kind == "unresolved"
            and tenant.gpu_uuid is not None
            and tenant.in_driver_mps_list is not True
            and reason is not None
            and reason is not Reason.PROCESS_GONE
        ):
            unknown.setdefault(tenant.gpu_uuid, reason)
    return unknown


def clients_known(look: DaemonLook) -> bool:
    """Whether every client of this daemon is in the look."""
    return look.servers.value is not None and all(server.clients is not None for server in look.servers.value)


def numbers_of_others(server: ServerLook) -> Reason | None:
    """Why a listed server is no such process here: its daemon may live in another pid namespace and list other numbers.

    None where it is one, or where that cannot be told.
    """
    reason = server.unknown.get("start_ticks") if server.start_ticks is None else None
    return reason if reason in {Reason.IDENTITY_AMBIGUOUS, Reason.SERVER_VANISHED} else None


def _said(daemons: Sequence[DaemonLook]) -> _Daemons:
    said = _Daemons()
    for look in daemons:
        if look.our_session is not None:
            said.sessions[look.our_session] = look.name
        elif "our_session" in look.unknown:
            said.session_unclear[look.name] = look.unknown["our_session"]
        if look.servers.value is None:
            said.unclear = said.unclear or _as_reason(look.servers.unknown_reason)
        for server in look.servers.value or ():
            said.servers[server.pid] = (look.name, server.start_ticks)
            others = numbers_of_others(server)
            if server.clients is None or others is not None:
                said.unclear = said.unclear or server.unknown.get("clients") or others or Reason.SERVER_VANISHED
            if others is None:
                said.clients |= dict.fromkeys(server.clients or (), look.name)
    return said


def _as_reason(text: str | None) -> Reason:
    try:
        return Reason(text or "")
    except ValueError:
        return Reason.SOURCE_FAILED


def _gpu_reason(gpus: Sequence[GpuLook]) -> Reason | None:
    """Why some GPU's processes are not known; None when all are."""
    if not gpus:
        return Reason.NO_GPU
    unknown = [look.processes.unknown_reason for look in gpus if look.processes.value is None]
    return _as_reason(unknown[0]) if unknown else None


@dataclass(frozen=True, slots=True)
class _Join:
    """Everything that a row is judged by."""

    said: _Daemons
    identities: Mapping[int, Identity]
    before: Mapping[Key, Tenant]
    now: datetime
    identity_reason: Reason

    def verdict(self, row: GpuProcess, uuid: str | None) -> _Verdict:
        identity = self.identities.get(row.pid)
        if row.pid in self.said.servers:
            daemon, start_ticks = self.said.servers[row.pid]
            if identity is None or start_ticks is None or start_ticks == identity.start_ticks:
                return _Verdict("server", daemon)
        if identity is not None and identity.session in self.said.sessions:
            return _Verdict("ours", self.said.clients.get(row.pid, self.said.sessions[identity.session]))
        if row.pid in self.said.clients:
            return self._client(self.said.clients[row.pid], identity)
        if identity is None:
            return _Verdict("unresolved", reason=self.identity_reason)
        if self.said.unclear is None:
            return _Verdict("foreign")
        return self._while_silent(row, identity, uuid, self.said.unclear)

    def _client(self, daemon: str, identity: Identity | None) -> _Verdict:
        """A client is managed unless it may be ours."""
        if daemon in self.said.session_unclear:
            return _Verdict("unresolved", daemon, self.said.session_unclear[daemon])
        if identity is None and self.said.sessions:
            return _Verdict("unresolved", daemon, self.identity_reason)
        return _Verdict("managed", daemon)

    def _while_silent(self, row: GpuProcess, identity: Identity, uuid: str | None, reason: Reason) -> _Verdict:
        """Who it is while some daemon cannot be asked: only what cannot have changed since, or what the driver says.

        A process never changes from foreign to managed: it joined its daemon, or none, with its first context.
        """
        known = self.before.get((row.pid, identity.start_ticks, uuid))
        if known is not None and known.kind in {"server", "foreign"}:
            return _Verdict(known.kind, known.daemon)
        if row.mps_client is False and not identity.command.startswith(_SERVER_COMMAND):
            return _Verdict("foreign")
        return _Verdict("unresolved", reason=reason)

    def tenant(self, row: GpuProcess, uuid: str | None) -> Tenant:
        """The row with its kind, and with a reason for whatever is not known of it."""
        identity = self.identities.get(row.pid)
        verdict = self.verdict(row, uuid)
        unclear = self.said.unclear
        ticks = identity.start_ticks if identity else None
        name = row.name or (shown(identity.command) if identity else None) or None
        in_client_list = True if row.pid in self.said.clients else None if unclear else False
        unknown: dict[str, Reason] = {}
        if verdict.reason is not None:
            unknown["kind"] = verdict.reason
        if identity is None:
            unknown |= {"start_ticks": self.identity_reason, "uid": self.identity_reason}
        elif identity.uid is None:
            unknown["uid"] = Reason.PERMISSION
        memory_reason = row.memory_unknown_reason or Reason.NOT_SUPPORTED
        if uuid is None:
            unknown["gpu_uuid"] = memory_reason
        if row.used_memory_bytes is None:
            unknown["used_memory_bytes"] = memory_reason
        if name is None:
            unknown["process_name"] = self.identity_reason if identity is None else Reason.NOT_RECORDED
        if in_client_list is None and unclear is not None:
            unknown["in_client_list"] = unclear
        if row.mps_client is None:
            unknown["in_driver_mps_list"] = Reason.NOT_SUPPORTED if uuid else memory_reason
        earlier = self.before.get((row.pid, ticks, uuid)) or self.before.get((row.pid, ticks, None))
        return Tenant(
            pid=row.pid,
            start_ticks=ticks,
            gpu_uuid=uuid,
            kind=verdict.kind,
            daemon=verdict.daemon,
            process_name=name,
            used_memory_bytes=row.used_memory_bytes,
            uid=identity.uid if identity else None,
            in_client_list=in_client_list,
            in_driver_mps_list=row.mps_client,
            first_seen_at=earlier.first_seen_at if earlier else self.now,
            unknown=unknown,
        )


def _disagreements(
    daemons: Sequence[DaemonLook],
    gpus: Sequence[GpuLook],
    identities: Mapping[int, Identity],
    said: _Daemons,
    missing: Reason | None,
) -> tuple[Disagreement, ...]:
    """Where both sides are known and differ. Whoever has just gone is no disagreement."""
    only_client: dict[tuple[str | None, str | None], set[int]] = {}
    only_driver: dict[tuple[str | None, str | None], set[int]] = {}
    one_daemon = daemons[0].name if len(daemons) == 1 else None
    one_gpu = gpus[0].gpu.uuid if len(gpus) == 1 else None
    for look in gpus:
        for process in look.processes.value or ():
            if process.mps_client is None or process.pid not in identities:
                continue
            daemon = said.clients.get(process.pid)
            if daemon is not None and not process.mps_client:
                only_client.setdefault((daemon, look.gpu.uuid), set()).add(process.pid)
            if daemon is None and process.mps_client and said.unclear is None:
                only_driver.setdefault((one_daemon, look.gpu.uuid), set()).add(process.pid)
    if missing is None:
        listed = {process.pid for look in gpus for process in look.processes.value or ()}
        for pid, daemon in said.clients.items():
            if pid not in listed and pid in identities:
                only_client.setdefault((daemon, one_gpu), set()).add(pid)
    return tuple(
        Disagreement(
            daemon=place[0],
            gpu_uuid=place[1],
            only_in_client_list=tuple(sorted(only_client.get(place, ()))),
            only_in_driver_list=tuple(sorted(only_driver.get(place, ()))),
        )
        for place in sorted(only_client.keys() | only_driver.keys(), key=lambda place: (place[0] or "", place[1] or ""))
    )
