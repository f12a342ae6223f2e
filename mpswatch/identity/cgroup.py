"""What a cgroup path tells: unit and slice, container and its runtime, pod, Slurm job. Pure.

Each runtime and cgroup driver names its groups in a way of its own (tests/identity/trees has one of each). Groups
nest: a container in a pod's node that is a container itself has two of them, and the innermost is who it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mpswatch.documents import ContainerRuntime
from mpswatch.names import shown

_SCOPES: tuple[tuple[str, ContainerRuntime], ...] = (
    ("docker", "docker"),
    ("cri-containerd", "containerd"),
    ("nerdctl", "containerd"),
    ("crio", "cri-o"),
    ("libpod-payload", "podman"),
    ("libpod", "podman"),
)
"""How a container's group begins, with the runtime that writes it so; the longer of two comes first."""

_HELPERS = ("crio-conmon-", "libpod-conmon-")
"""Groups of the runtime's own helper, which is not in the container."""

_ID = r"[0-9a-f]{64}"
_SCOPED = re.compile(rf"(?:.*:)?({'|'.join(prefix for prefix, _ in _SCOPES)})[-:]({_ID})(?:\.scope)?")
_BARE = re.compile(_ID)
_POD = re.compile(r"pod([0-9a-f]{8}[-_](?:[0-9a-f]{4}[-_]){3}[0-9a-f]{12}|[0-9a-f]{32})")
_UNIT = re.compile(r".+\.(?:service|scope|socket|mount|swap)")
_JOB = re.compile(r"job_(\d{1,20})")
_LXC = re.compile(r"lxc\.payload\.(.+)")
_MACHINE = re.compile(r"machine-(.+)\.scope")
_BY_FOLDER: dict[str, ContainerRuntime] = {"docker": "docker", "libpod_parent": "podman", "crio": "cri-o"}


@dataclass(frozen=True, slots=True)
class Container:
    """A container's id (64 hexadecimal digits, or the name where a runtime uses that), and its runtime if known."""

    id: str
    runtime: ContainerRuntime | None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process stands. `containers` are outermost first."""

    unit: str | None = None
    slice: str | None = None
    containers: tuple[Container, ...] = ()
    pod_uid: str | None = None
    slurm_job: str | None = None


def place(data: bytes) -> Place:
    """What the lines of /proc/PID/cgroup tell, of version 1, 2 or both."""
    paths = _paths(data)
    places = [_of_path(path) for path in paths]
    best = Place()
    # Units stand in the named hierarchy (first), containers in any: a v1 controller may know what that one does not.
    for found in places:
        best = Place(
            unit=best.unit or found.unit,
            slice=best.slice or found.slice,
            containers=max(best.containers, found.containers, key=len),
            pod_uid=best.pod_uid or found.pod_uid,
            slurm_job=best.slurm_job or found.slurm_job,
        )
    return best


def _paths(data: bytes) -> list[str]:
    """The distinct paths, those that systemd keeps its units in first: version 2, then v1's name=systemd."""
    first: list[str] = []
    second: list[str] = []
    for line in data.decode("utf-8", "backslashreplace").splitlines():
        number, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if not colon or not path.startswith("/"):
            continue
        path = path.removesuffix(" (deleted)")
        systemd = controllers == "name=systemd" or (number == "0" and not controllers)
        (first if systemd else second).append(path)
    return list(dict.fromkeys([*first, *second]))


def _of_path(path: str) -> Place:
    segments = [segment for segment in path.split("/") if segment and segment != ".."]
    containers: list[Container] = []
    unit = group = pod = job = None
    folder = ""
    slurm = False
    for segment in segments:
        found = _container(segment, folder)
        if found is not None:
            # the payload of a podman container lies in the group of the container: one container
            if not containers or containers[-1].id != found.id:
                containers.append(found)
        elif segment.endswith(".slice"):
            group = segment
        elif _UNIT.fullmatch(segment) and not segment.startswith(_HELPERS):
            unit = segment
        if named := _POD.search(segment):
            pod = named[1].replace("_", "-")
        slurm = slurm or "slurm" in segment
        if slurm and (numbered := _JOB.fullmatch(segment)):
            job = numbered[1]
        folder = segment
    return Place(_name(unit), _name(group), tuple(containers), pod, job)


def _container(segment: str, folder: str) -> Container | None:
    if segment.startswith(_HELPERS):
        return None
    if scoped := _SCOPED.fullmatch(segment):
        return Container(scoped[2], dict(_SCOPES)[scoped[1]])
    if _BARE.fullmatch(segment):
        return Container(segment, _BY_FOLDER.get(folder))
    if named := _LXC.fullmatch(segment):
        return Container(shown(named[1]), "lxc")
    if named := _MACHINE.fullmatch(segment):
        return Container(shown(named[1]), "nspawn")
    return None


def _name(unit: str | None) -> str | None:
    """A unit's name; systemd puts `_` before one that would look like a file of the kernel's."""
    return None if unit is None else shown(unit.removeprefix("_"))
