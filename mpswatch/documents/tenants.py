"""The processes on a GPU, told apart, and what was expected of them."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

from mpswatch.documents.envelope import Document
from mpswatch.documents.numbers import Number32, Whole
from mpswatch.documents.reasons import Reason

TenantKind: TypeAlias = Literal["server", "ours", "managed", "foreign", "unresolved"]

ContainerRuntime: TypeAlias = Literal["docker", "containerd", "cri-o", "podman", "lxc", "nspawn"]


class TenantIdentity(Document, frozen=True, kw_only=True):
    """Who a process is beyond its number, from /proc and the runtimes' own files.

    None is "not so" (no container, no unit), unless `unknown` has a reason. `command_line` is masked and clipped.
    `container_id` is the innermost container's, `nested_in` the id of the one around it. In a pod `container_name` is
    the container's name in the pod. `labels` are those that configured patterns ask for. `unit` and `slice` are the
    innermost of systemd's; a container's own scope is no unit.
    """

    executable: str | None = None
    command_line: str | None = None
    user: str | None = None
    started_at: datetime | None = None
    parent_pid: Number32 | None = None
    parent_name: str | None = None
    unit: str | None = None
    slice: str | None = None
    container_id: str | None = None
    container_runtime: ContainerRuntime | None = None
    container_name: str | None = None
    nested_in: str | None = None
    image: str | None = None
    pod_uid: str | None = None
    pod_name: str | None = None
    pod_namespace: str | None = None
    slurm_job: str | None = None
    labels: dict[str, str] = {}
    unknown: dict[str, Reason] = {}


class Tenant(Document, frozen=True, kw_only=True):
    """A process on one GPU, told apart. Its key is (pid, start_ticks, gpu_uuid).

    A managed client without any row in the driver's list has `gpu_uuid` None and reason in `unknown`.
    `process_name` is printable, clipped, homes shown as `~`. `expectations` are the names of the configured services
    that it matches: where it is foreign it has *escaped*. `welcome` is the pattern by which a foreign one is welcome.
    `undecided` are patterns that ask for a label and may match: its labels are not known (`identity.unknown`).
    """

    pid: Number32
    start_ticks: Whole | None
    gpu_uuid: str | None
    kind: TenantKind
    daemon: str | None = None
    process_name: str | None = None
    used_memory_bytes: Whole | None = None
    uid: Number32 | None = None
    in_client_list: bool | None = None
    in_driver_mps_list: bool | None = None
    first_seen_at: datetime | None = None
    identity: TenantIdentity | None = None
    expectations: tuple[str, ...] = ()
    welcome: str | None = None
    undecided: tuple[str, ...] = ()
    unknown: dict[str, Reason] = {}


class ExpectationLook(Document, frozen=True, kw_only=True):
    """What one configured pattern matched, in processes. `minimum` is None for a welcome pattern.

    `managed` are MPS clients, `escaped` run on the GPU outside MPS, `unresolved` cannot be told; of a welcome pattern
    all that matched are in `matched` alone. `unknown_reason` says why the counts may be too small.
    """

    name: str
    minimum: Whole | None
    matched: Whole
    managed: Whole = 0
    escaped: Whole = 0
    unresolved: Whole = 0
    unknown_reason: Reason | None = None


class Disagreement(Document, frozen=True, kw_only=True):
    """Where the control daemons' client lists and the driver's MPS list differ, on one GPU (pids ascending)."""

    daemon: str | None
    gpu_uuid: str | None
    only_in_client_list: tuple[Number32, ...]
    only_in_driver_list: tuple[Number32, ...]


class ReferenceTenant(Document, frozen=True, kw_only=True):
    """A foreign tenant as the reference document writes it (MiB), with what we add."""

    pid: Number32
    used_memory_mb: Whole | None
    process_name: str | None
    gpu_uuid: str | None = None
    start_ticks: Whole | None = None
    uid: Number32 | None = None
    unknown: dict[str, Reason] = {}
