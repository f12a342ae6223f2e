"""Identities read once a process, and remembered with its start time: a number that is used again is somebody else."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from mpswatch.documents import Reason, TenantIdentity
from mpswatch.identity import cgroup
from mpswatch.identity.containers import ContainerFiles
from mpswatch.identity.facts import ContainerFacts
from mpswatch.identity.masking import command_line
from mpswatch.identity.users import Users
from mpswatch.names import shown
from mpswatch.proc import Identity, Processes, ProcessGone

YOUNG = 60.0
"""Seconds of age up to which a process's cgroup is read again: units, containers and jobs are entered after the start.
One with another name than before (it exec'ed) is read anew at any age."""

WITHOUT_LABELS = frozenset({"lxc", "nspawn"})
"""Runtimes whose containers have none."""

_FROM_CGROUP = ("unit", "slice", "container_id", "pod_uid", "slurm_job", "labels")


@dataclass(frozen=True, slots=True)
class Known:
    """A process with its identity as published, and what only patterns may see: its whole command line, all labels.

    Where patterns ask for labels and not `labels_known`, there may be others than `labels`.
    """

    start_ticks: int
    command: str
    identity: TenantIdentity
    arguments: tuple[str, ...]
    labels: Mapping[str, str]
    labels_known: bool
    groups: bytes | None
    settled: bool


class Identities:
    """Identities of processes under one /proc. `root` is the host's file system; `label_keys` are those to publish."""

    def __init__(
        self, processes: Processes, *, root: Path = Path("/"), label_keys: Collection[str] = frozenset()
    ) -> None:
        self._processes = processes
        self._users = Users(root)
        self._files = ContainerFiles(root)
        self._label_keys = frozenset(label_keys)
        self._known: dict[int, Known] = {}

    def of(self, looked_at: Mapping[int, Identity]) -> dict[int, Known]:
        """Identities of the processes that were just looked at; one that has gone meanwhile is left out.

        Whoever is not among them is forgotten.
        """
        found: dict[int, Known] = {}
        boot: datetime | None = None
        uptime = self._processes.uptime() if looked_at else None
        for pid, seen in looked_at.items():
            known = self._known.get(pid)
            if known is not None and self._is_still(known, seen, uptime):
                found[pid] = known
                continue
            boot = boot or self._processes.boot_time()
            try:
                found[pid] = self._read(seen, boot, uptime)
            except ProcessGone:
                continue
        self._known = found
        return found

    def _is_still(self, known: Known, seen: Identity, uptime: float | None) -> bool:
        if (known.start_ticks, known.command) != (seen.start_ticks, seen.command):
            return False
        return known.settled or (self._groups(seen.pid) == known.groups and not self._has_settled(seen, uptime))

    def _has_settled(self, seen: Identity, uptime: float | None) -> bool:
        age = self._processes.age_seconds(seen, uptime)
        return age is None or age > YOUNG

    def _groups(self, pid: int) -> bytes | None:
        try:
            return self._processes.cgroup(pid)
        except ProcessGone:
            return None

    def _read(self, seen: Identity, boot: datetime | None, uptime: float | None) -> Known:
        facts = self._processes.facts(seen.pid)
        unknown: dict[str, Reason] = {}
        groups = self._groups(seen.pid)
        place = cgroup.place(groups or b"")
        if groups is None:
            unknown |= dict.fromkeys(
                ("unit", "slice", "container_id", "pod_uid", "slurm_job", "labels"), Reason.PERMISSION
            )
        if facts.start_ticks != seen.start_ticks:
            raise ProcessGone(Reason.PROCESS_GONE, f"{seen.pid} is another process by now")
        user = self._users.user(facts.uid) if facts.uid is not None else None
        container = place.containers[-1] if place.containers else None
        written = ContainerFacts()
        if container is not None:
            written = self._files.facts(container.id, pod_uid=place.pod_uid, home=user.home if user else None)
            if written.name is None:
                unknown["container_name"] = written.unknown or Reason.NOT_RECORDED
            if self._label_keys and not (written.labels_known or container.runtime in WITHOUT_LABELS):
                unknown["labels"] = written.unknown or Reason.NOT_RECORDED
        pod_uid = place.pod_uid or written.pod_uid
        if pod_uid is not None and written.pod_name is None:
            unknown["pod_name"] = unknown["pod_namespace"] = written.unknown or Reason.NOT_RECORDED
        if user is None:
            unknown["user"] = Reason.PERMISSION if facts.uid is None else Reason.NOT_RECORDED
        if facts.executable is None:
            unknown["executable"] = Reason.PERMISSION
        if not facts.arguments:
            unknown["command_line"] = Reason.NOT_RECORDED
        started_at = self._processes.started_at(facts, boot) if boot is not None else None
        if started_at is None:
            unknown["started_at"] = Reason.NOT_SUPPORTED
        identity = TenantIdentity(
            executable=shown(facts.executable) if facts.executable is not None else None,
            command_line=command_line(facts.arguments) if facts.arguments else None,
            user=user.name if user else None,
            started_at=started_at,
            parent_pid=facts.parent or None,
            parent_name=self._name_of(facts.parent),
            unit=place.unit,
            slice=place.slice,
            container_id=container.id if container else None,
            container_runtime=(container.runtime or written.runtime) if container else None,
            container_name=written.name,
            nested_in=place.containers[-2].id if len(place.containers) > 1 else None,
            image=written.image,
            pod_uid=pod_uid,
            pod_name=written.pod_name,
            pod_namespace=written.pod_namespace,
            slurm_job=place.slurm_job,
            labels={key: written.labels[key] for key in sorted(self._label_keys & written.labels.keys())},
            unknown=unknown,
        )
        return Known(
            start_ticks=facts.start_ticks,
            command=seen.command,
            identity=identity,
            arguments=facts.arguments,
            labels=written.labels,
            labels_known="labels" not in unknown,
            groups=groups,
            settled=self._has_settled(seen, uptime),
        )

    def _name_of(self, pid: int) -> str | None:
        try:
            return shown(self._processes.identity(pid).command) if pid else None
        except ProcessGone:
            return None
