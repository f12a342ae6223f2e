"""The vocabulary: what was seen and measured, as immutable documents.

Every room speaks in these types; nothing here does I/O or reads a clock. Three kinds of fact exist,
and `record(fact)` takes exactly these: `PollSnapshot`, `SweepDocument` and `Event`.

One rule governs every number (docs/documents.md): it is what was measured, or it is absent with a reason.
A quantity that was looked up as a whole travels in an `Envelope`; a row of numbers (a cell, a tenant, a
server) is one envelope: bare numbers, the row's state, and a reason for each number that is missing.
"""

from __future__ import annotations

import enum
from datetime import datetime
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

SCHEMA_VERSION = 1

T = TypeVar("T")

State: TypeAlias = Literal["measured", "simulated", "unknown"]
"""`simulated` is what the rehearsal stack produced: a reader that asks for `measured` must reject it."""


class Reason(enum.StrEnum):
    """Why something is unknown, refused or failed: bounded, because it is also a metric's label value."""

    # the control program and its daemon
    CONTROL_PROGRAM_MISSING = "control_program_missing"
    DAEMON_ABSENT = "daemon_absent"
    DAEMON_SILENT = "daemon_silent"
    DAEMON_NONSENSE = "daemon_nonsense"
    PERMISSION = "permission"
    PROTOCOL_UNSUPPORTED = "protocol_unsupported"
    NO_SERVER = "no_server"
    SEVERAL_SERVERS = "several_servers"
    SERVER_NOT_ACTIVE = "server_not_active"
    SERVER_FAULT = "server_fault"
    SERVER_CHANGED = "server_changed"
    SERVER_UNSETTLED = "server_unsettled"
    SERVER_FULL = "server_full"
    SERVER_VANISHED = "server_vanished"
    UID_MISMATCH = "uid_mismatch"
    RECENT_FAULT = "recent_fault"
    FOREIGN_CLIENT_WAITING = "foreign_client_waiting"
    # the GPU
    NVML_MISSING = "nvml_missing"
    NVML_MISMATCH = "nvml_mismatch"
    NVML_ERROR = "nvml_error"
    NVIDIA_SMI_MISSING = "nvidia_smi_missing"
    NVIDIA_SMI_NONSENSE = "nvidia_smi_nonsense"
    NVIDIA_SMI_ERROR = "nvidia_smi_error"
    GPU_LOST = "gpu_lost"
    NO_GPU = "no_gpu"
    NOT_SUPPORTED = "not_supported"
    INSUFFICIENT_PERMISSIONS = "insufficient_permissions"
    PID_NAMESPACE_BLIND = "pid_namespace_blind"
    MIG = "mig"
    MEMORY_SHORT = "memory_short"
    UTILIZATION_HIGH = "utilization_high"
    SOURCE_STUCK = "source_stuck"
    SOURCE_FAILED = "source_failed"
    # processes
    PROCESS_GONE = "process_gone"
    IDENTITY_AMBIGUOUS = "identity_ambiguous"
    # the sweep
    DISABLED = "disabled"
    PAUSED = "paused"
    QUIET_HOURS = "quiet_hours"
    SWEEP_RUNNING = "sweep_running"
    CLIENT_LEFT_OVER = "client_left_over"
    NO_POLL_YET = "no_poll_yet"
    STOPPED = "stopped"
    DEADLINE = "deadline"
    CLIENT_PROGRAM_MISSING = "client_program_missing"
    CLIENT_IMPORT_FAILED = "client_import_failed"
    CLIENT_NONSENSE = "client_nonsense"
    CLIENT_DIED = "client_died"
    CLIENT_ERROR = "client_error"
    CLIENT_STUCK = "client_stuck"
    CUDA_UNAVAILABLE = "cuda_unavailable"
    OUT_OF_MEMORY = "out_of_memory"
    KERNEL_TOO_LONG = "kernel_too_long"
    CAP_OUT_OF_RANGE = "cap_out_of_range"
    NOT_MANAGED = "not_managed"
    NOT_RUN = "not_run"
    ALL_CELLS_FAILED = "all_cells_failed"
    REHEARSAL_STACK = "rehearsal_stack"
    # documents and time
    NOT_RECORDED = "not_recorded"
    NEVER_SEEN = "never_seen"
    HISTORY_SHORT = "history_short"
    STALE = "stale"
    ARCHIVE_WRITE_FAILED = "archive_write_failed"
    ARCHIVE_READ_FAILED = "archive_read_failed"
    ADDRESS_UNAVAILABLE = "address_unavailable"
    WEB_CONFIGURATION = "web_configuration"
    CONFIGURATION = "configuration"
    INTERNAL_ERROR = "internal_error"


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every type here: immutable, built by keyword, unknown keys of later versions ignored."""


class Envelope(Document, Generic[T], frozen=True, kw_only=True):
    """A measured quantity as the reference document writes it.

    `value` is None exactly when `state` is `unknown`, and then `unknown_reason` says why.
    `measured_at` is the moment of this measurement, not of the document that holds it.
    """

    value: T | None
    state: State
    source: str
    measured_at: datetime
    evidence: dict[str, Any]
    unknown_reason: str | None

    def __post_init__(self) -> None:
        unknown = self.state == "unknown"
        if unknown != (self.value is None):
            raise ValueError(f"state {self.state!r} does not go with value {self.value!r}")
        if unknown != (self.unknown_reason is not None):
            raise ValueError(f"state {self.state!r} does not go with unknown_reason {self.unknown_reason!r}")


# --- the GPU ---------------------------------------------------------------------------------------


class Gpu(Document, frozen=True, kw_only=True):
    """One device. `unknown` maps each field that is None to its `Reason`.

    `sm_count` is the whole device's number of streaming multiprocessors, from the core count over the
    cores per SM of the compute capability: never what a capped client saw.
    """

    uuid: str
    index: int
    name: str
    driver_version: str | None = None
    memory_total_bytes: int | None = None
    compute_capability: str | None = None
    sm_count: int | None = None
    mig_enabled: bool | None = None
    compute_mode: str | None = None
    unknown: dict[str, Reason] = {}


class Conditions(Document, frozen=True, kw_only=True):
    """What the GPU was doing at one moment: MHz, watts, degrees Celsius, ratios 0-1, bytes.

    `unknown` maps each field that is None to its `Reason`.
    """

    measured_at: datetime
    source: str
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    utilization_ratio: float | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    unknown: dict[str, Reason] = {}


class GpuProcess(Document, frozen=True, kw_only=True):
    """One row of the driver's process list, before anybody asked who it is.

    `mps_client` is the driver's own word (NVML's MPS list, `M+C` in nvidia-smi), None where unknown.
    `name` is as the source gave it, already printable; None where the source gives none.
    """

    pid: int
    used_memory_bytes: int | None
    memory_unknown_reason: Reason | None = None
    mps_client: bool | None = None
    name: str | None = None


class GpuLook(Document, frozen=True, kw_only=True):
    """One GPU at one poll."""

    gpu: Gpu
    processes: Envelope[tuple[GpuProcess, ...]]
    conditions: Conditions


# --- MPS -------------------------------------------------------------------------------------------


class Context(Document, frozen=True, kw_only=True):
    """One row of the control program's `ps`: a client's context on a device. Enrichment, never the proof."""

    pid: int
    context_id: int
    server_pid: int
    device: str
    pid_namespace: int | None
    command: str


class ServerLook(Document, frozen=True, kw_only=True):
    """One MPS server. Numbers that are None have their reason in `unknown`.

    `start_ticks` is field 22 of /proc/PID/stat (clock ticks since boot): with the pid it identifies the
    process. `clients` are pids in the control daemon's pid namespace, ascending.
    """

    pid: int
    start_ticks: int | None = None
    age_seconds: float | None = None
    uid: int | None = None
    multi_user: bool | None = None
    server_state: str | None = None
    clients: tuple[int, ...] | None = None
    contexts: tuple[Context, ...] | None = None
    context_limit: int | None = None
    unknown: dict[str, Reason] = {}


class WaitingClient(Document, frozen=True, kw_only=True):
    """A client on the control daemon's pending list. `pid` is as the daemon knows it, 0 where it does not."""

    pid: int
    uid: int


class Waiting(Document, frozen=True, kw_only=True):
    """Clients of another uid, and the daemon's intention to shut the running server down for them (control.log).

    `shutdown_armed`: it does so at the server's first idle moment, even if the client has died since, and then clients
    of the right uid hang. `clients` are those whose process is still there.
    """

    clients: tuple[WaitingClient, ...] = ()
    shutdown_armed: bool = False


class DaemonLook(Document, frozen=True, kw_only=True):
    """One control daemon at one poll.

    `up` is None when the daemon could be neither spoken to nor found absent (no program, no answer).
    `our_session` is the session id of the measuring client's launcher that holds the lock on the pipe
    directory, so the managed processes of that session are ours; None when nobody holds it.
    `visible_devices` are the daemon's CUDA_VISIBLE_DEVICES, None for all GPUs or where they cannot be read.
    """

    name: str
    pipe_directory: str
    up: bool | None
    up_reason: Reason | None = None
    protocol: str | None = None
    default_active_thread_percentage: float | None = None
    servers: Envelope[tuple[ServerLook, ...]]
    our_session: int | None = None
    waiting: Waiting | None = None
    visible_devices: tuple[str, ...] | None = None
    unknown: dict[str, Reason] = {}


# --- tenants ---------------------------------------------------------------------------------------

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
    parent_pid: int | None = None
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
    """

    pid: int
    start_ticks: int | None
    gpu_uuid: str | None
    kind: TenantKind
    daemon: str | None = None
    process_name: str | None = None
    used_memory_bytes: int | None = None
    uid: int | None = None
    in_client_list: bool | None = None
    in_driver_mps_list: bool | None = None
    first_seen_at: datetime | None = None
    identity: TenantIdentity | None = None
    expectations: tuple[str, ...] = ()
    welcome: str | None = None
    unknown: dict[str, Reason] = {}


class ExpectationLook(Document, frozen=True, kw_only=True):
    """What one configured pattern matched, in processes. `minimum` is None for a welcome pattern.

    `managed` are MPS clients, `escaped` run on the GPU outside MPS, `unresolved` cannot be told; of a welcome pattern
    all that matched are in `matched` alone. `unknown_reason` says why the counts may be too small.
    """

    name: str
    minimum: int | None
    matched: int
    managed: int = 0
    escaped: int = 0
    unresolved: int = 0
    unknown_reason: Reason | None = None


class Disagreement(Document, frozen=True, kw_only=True):
    """Where the control daemons' client lists and the driver's MPS list differ, on one GPU (pids ascending)."""

    daemon: str | None
    gpu_uuid: str | None
    only_in_client_list: tuple[int, ...]
    only_in_driver_list: tuple[int, ...]


class SourceLook(Document, frozen=True, kw_only=True):
    """How asking one source went: `source` is `mps`, `nvml`, `nvidia-smi` or `proc`; `daemon` only for `mps`."""

    source: str
    daemon: str
    success: bool
    duration_seconds: float
    reason: Reason | None = None
    detail: str | None = None


class SystemMemory(Document, frozen=True, kw_only=True):
    """The host's memory: the denominator where a GPU has none of its own (unified memory). `source` says whose word."""

    total_bytes: int | None
    available_bytes: int | None
    source: str = "/proc/meminfo"


class PollSnapshot(Document, frozen=True, kw_only=True):
    """One look at everything, without measuring anything.

    `foreign_unknown` maps each GPU (uuid) whose foreign figures are not known to the reason: its processes are not
    known, or nobody could say which of them are managed. Elsewhere the foreign tenants in `tenants` are all there are.
    """

    schema_version: int = SCHEMA_VERSION
    kind: Literal["poll"] = "poll"
    host: str
    started_at: datetime
    finished_at: datetime
    simulated: bool
    daemons: tuple[DaemonLook, ...]
    gpus: Envelope[tuple[GpuLook, ...]]
    tenants: Envelope[tuple[Tenant, ...]]
    disagreements: tuple[Disagreement, ...]
    sources: tuple[SourceLook, ...]
    foreign_unknown: dict[str, Reason] = {}
    expectations: tuple[ExpectationLook, ...] = ()
    system_memory: SystemMemory | None = None


# --- the sweep -------------------------------------------------------------------------------------


class ReferenceTenant(Document, frozen=True, kw_only=True):
    """A foreign tenant as the reference document writes it (MiB), with what we add."""

    pid: int
    used_memory_mb: int | None
    process_name: str | None
    gpu_uuid: str | None = None
    start_ticks: int | None = None
    uid: int | None = None
    unknown: dict[str, Reason] = {}


class Protocol(Document, frozen=True, kw_only=True):
    """How it was measured. The first six keys are the reference document's."""

    caps_percent: str
    iters: int
    matrix_size: int
    dtype: str
    op: str
    client_runtime: str
    plan: str = "quick"
    backend: str | None = None
    seed: int | None = None
    input_values: str | None = None
    warm_up_iterations: int | None = None
    l2_state: str | None = None
    cells_run: tuple[str, ...] | None = None
    interval_method: str | None = None


class SmExpectation(Document, frozen=True, kw_only=True):
    """What a cap implies for the number of SMs a client sees: above < n <= at_most.

    From `total` SMs of the whole device: at_most = max(total*cap/100, 8), above = total*cap/100 - 8.
    """

    total: int
    at_most: float
    above: float


class CellTimings(Document, frozen=True, kw_only=True):
    """Where a cell's time went, in seconds; None where that phase was not reached."""

    fork: float | None = None
    context: float | None = None
    allocate: float | None = None
    warm_up: float | None = None
    measure: float | None = None
    attached_to_gone: float | None = None
    total: float | None = None
    busy: float | None = None


class Pieces(Document, frozen=True, kw_only=True):
    """How the work was queued: bounded pieces, and the time nobody looked at the lifeline (seconds)."""

    count: int
    in_flight_most: int
    longest_unwatched: float
    gap_ratio: float
    host_bound: bool


class ConditionsDuring(Document, frozen=True, kw_only=True):
    """What the GPU was doing while work ran, from `count` looks of the watcher: medians and extremes.

    `unknown` maps each field that is None to its `Reason`; with no look at all every field is `not_recorded`.
    """

    count: int
    sm_clock_mhz: float | None = None
    sm_clock_mhz_least: float | None = None
    sm_clock_mhz_most: float | None = None
    power_watts: float | None = None
    power_watts_most: float | None = None
    temperature_celsius_most: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    unknown: dict[str, Reason] = {}


class Figure(Document, frozen=True, kw_only=True):
    """One named quantity of a cell (burst, or sustained): the median with its interval.

    `tflops` is that of the median sample, `interval_low` and `interval_high` those of the interval's ends; they are
    None where there are too few samples for `confidence`. `spread` is (largest - smallest) / median of the samples,
    `between_repeats` the same of the repeats' own medians. `samples` are seconds per iteration, in the order taken.
    `settled` says whether the times had settled before the first sample, in every repeat.
    """

    tflops: float
    interval_low: float | None
    interval_high: float | None
    confidence: float
    within_width: bool
    spread: float
    between_repeats: float
    count: int
    repeats: int
    samples: tuple[float, ...] = ()
    settled: bool | None = None
    settle_seconds: float | None = None
    conditions_before: Conditions | None = None
    conditions_during: ConditionsDuring | None = None
    conditions_after: Conditions | None = None


class Repeat(Document, frozen=True, kw_only=True):
    """One client of a cap that was measured more than once: `order` is its place among all clients of the sweep.

    `passes` are the seconds of each pass of `iters` after a rest, `sustained` seconds per iteration under load.
    """

    order: int
    state: State
    unknown_reason: str | None = None
    failure: str | None = None
    measured_at: datetime | None = None
    client_pid: int | None = None
    sm_count: int | None = None
    passes: tuple[float, ...] = ()
    sustained: tuple[float, ...] = ()
    settled: bool | None = None
    longest_unwatched: float | None = None
    busy: float | None = None


CapEnforcement: TypeAlias = Literal["enforced", "not_enforced", "unknown"]


class CapVerdict(Document, frozen=True, kw_only=True):
    """Whether a cap is enforced, with what speaks for it, one sentence each. The rules are in docs/method.md."""

    verdict: CapEnforcement
    evidence: tuple[str, ...]


class Cell(Document, frozen=True, kw_only=True):
    """One cap of a sweep, one envelope. The first ten keys are the reference document's.

    `seconds` runs from the first start event to the last end event over exactly `iters` matmuls;
    `tflops` is 2*size^3*iters/seconds/1e12. Both are None unless the client was seen in the daemon's own
    list on the server that the preflight saw. `samples` are seconds per iteration, taken outside `seconds`.
    """

    cap: str
    iters: int
    size: int
    seconds: float | None
    tflops: float | None
    client_reported_pid: int | None
    client_pid_is_namespaced: bool | None
    mps_clients_joined_during_cell: tuple[int, ...] | None
    self_was_managed: bool | None
    managed_clients_after_cell: tuple[int, ...] | None
    # from here on ours
    state: State = "measured"
    unknown_reason: str | None = None
    failure: str | None = None
    order: int | None = None
    measured_at: datetime | None = None
    clock: str | None = None
    client_pid: int | None = None
    server_pid: int | None = None
    sm_count: int | None = None
    sm_count_expected: SmExpectation | None = None
    sm_count_as_expected: bool | None = None
    samples: tuple[float, ...] = ()
    tenants_present: tuple[ReferenceTenant, ...] | None = None
    conditions_before: Conditions | None = None
    conditions_after: Conditions | None = None
    timings: CellTimings | None = None
    pieces: Pieces | None = None
    environment: dict[str, str] | None = None
    burst: Figure | None = None
    sustained: Figure | None = None
    repeats: tuple[Repeat, ...] = ()
    verdict: CapVerdict | None = None
    unknown: dict[str, Reason] = {}

    def __post_init__(self) -> None:
        if (self.state == "unknown") != (self.unknown_reason is not None):
            raise ValueError(f"state {self.state!r} does not go with unknown_reason {self.unknown_reason!r}")
        if (self.state == "unknown") != (self.seconds is None) or (self.seconds is None) != (self.tflops is None):
            raise ValueError(f"state {self.state!r} does not go with seconds {self.seconds!r}, tflops {self.tflops!r}")
        if self.state != "unknown" and self.self_was_managed is not True:
            raise ValueError("a cell counts only if its client was seen in the daemon's own list")


class MpsFacts(Document, frozen=True, kw_only=True):
    """The control daemon and server that a sweep measured against, as the preflight saw them."""

    daemon: str
    protocol: str | None
    server_pid: int | None
    server_start_ticks: int | None
    server_uid: int | None
    multi_user: bool | None
    server_state: str | None
    default_active_thread_percentage: float | None
    unknown: dict[str, Reason] = {}


class SweepDocument(Document, frozen=True, kw_only=True):
    """One sweep of one GPU: a superset of the reference harness's document (tests/reference)."""

    schema_version: int
    what: str
    harness: str
    harness_note: str
    host: str
    recorded_at: datetime
    pipe_directory: str
    cap_semantics: str
    protocol: Protocol
    managed_clients_before: Envelope[tuple[int, ...]]
    managed_clients_after: Envelope[tuple[int, ...]]
    unmanaged_tenants: Envelope[tuple[ReferenceTenant, ...]]
    cells: tuple[Cell, ...]
    tflops_by_cap: Envelope[dict[str, float | None]]
    complete_sweep: bool
    partial_run_note: str | None
    # from here on ours
    kind: Literal["sweep"] = "sweep"
    run_id: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    simulated: bool = False
    mpswatch_version: str | None = None
    gpu: Gpu | None = None
    mps: MpsFacts | None = None
    trigger: str | None = None
    launcher_timings: dict[str, float] | None = None
    client_facts: dict[str, str] | None = None
    stuck_clients: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.schema_version != SCHEMA_VERSION:
            raise ValueError(f"schema_version {self.schema_version} is not {SCHEMA_VERSION}")
        if self.complete_sweep != (self.partial_run_note is None):
            raise ValueError("a partial sweep, and no other, has a partial_run_note")
        if self.complete_sweep and any(cell.state == "unknown" for cell in self.cells):
            raise ValueError("a complete sweep has no unknown cell")
        states = {cell.state for cell in self.cells}
        if (self.simulated and "measured" in states) or (not self.simulated and "simulated" in states):
            raise ValueError(f"simulated is {self.simulated}, but cells are {', '.join(sorted(states))}")
        # the reference's cells have no state of their own: its envelopes are all that can say it
        looked = (self.managed_clients_before, self.managed_clients_after, self.unmanaged_tenants, self.tflops_by_cap)
        if not self.simulated and any(quantity.state == "simulated" for quantity in looked):
            raise ValueError("simulated is False, but a quantity is simulated")


# --- interference ----------------------------------------------------------------------------------

WorkKind: TypeAlias = Literal["matmul", "stream", "launch"]
"""Compute (a square matmul), memory bandwidth (one pass over large memory), latency (tiny kernels in a row)."""


class Rate(Document, frozen=True, kw_only=True):
    """How fast one client worked under load: the median of `count` samples, its interval and its spread.

    `unit` is TFLOPS, GB/s or launches/s. The interval holds the median with at least `confidence`; its ends are None
    where there are too few samples. `spread` is (largest - smallest) / median.
    """

    unit: str
    value: float
    interval_low: float | None
    interval_high: float | None
    confidence: float
    spread: float
    count: int
    settled: bool


class InterferenceCell(Document, frozen=True, kw_only=True):
    """One victim, alone beside the stack as it is (`aggressor_cap` None) or beside one aggressor; one envelope.

    `slowdown` is 1 - rate beside / rate alone (0.28: it lost 28 %), from `slowdown_low` to `slowdown_high` with at
    least 95 %; negative where it was faster. `aggressor` worked for the whole time in which `victim` was measured.
    """

    order: int
    victim_cap: str
    victim_kind: WorkKind
    aggressor_cap: str | None
    aggressor_kind: WorkKind | None
    state: State
    unknown_reason: str | None = None
    failure: str | None = None
    measured_at: datetime | None = None
    victim: Rate | None = None
    aggressor: Rate | None = None
    slowdown: float | None = None
    slowdown_low: float | None = None
    slowdown_high: float | None = None
    victim_pid: int | None = None
    aggressor_pid: int | None = None
    victim_sm_count: int | None = None
    aggressor_sm_count: int | None = None
    conditions_during: ConditionsDuring | None = None
    longest_unwatched: float | None = None
    unknown: dict[str, Reason] = {}

    def __post_init__(self) -> None:
        if (self.state == "unknown") != (self.unknown_reason is not None):
            raise ValueError(f"state {self.state!r} does not go with unknown_reason {self.unknown_reason!r}")
        if (self.state == "unknown") != (self.victim is None):
            raise ValueError(f"state {self.state!r} does not go with victim {self.victim!r}")


class InterferenceProtocol(Document, frozen=True, kw_only=True):
    """How interference was measured: seconds, and what each kind of work does."""

    size: int
    dtype: str
    seed: int
    client_runtime: str
    backend: str
    settle_seconds: float
    window_seconds: float
    kinds: dict[str, str]
    slowdown: str


class InterferenceDocument(Document, frozen=True, kw_only=True):
    """What pairs of our own capped clients cost each other on one GPU, beside the stack as it was."""

    schema_version: int
    kind: Literal["interference"] = "interference"
    what: str
    host: str
    run_id: str
    recorded_at: datetime
    started_at: datetime
    finished_at: datetime
    simulated: bool
    pipe_directory: str
    gpu: Gpu | None
    mps: MpsFacts | None
    protocol: InterferenceProtocol
    unmanaged_tenants: Envelope[tuple[ReferenceTenant, ...]]
    managed_clients_before: Envelope[tuple[int, ...]]
    solo: tuple[InterferenceCell, ...]
    pairs: tuple[InterferenceCell, ...]
    complete: bool
    partial_run_note: str | None = None
    trigger: str | None = None
    mpswatch_version: str | None = None
    launcher_timings: dict[str, float] | None = None
    stuck_clients: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.schema_version != SCHEMA_VERSION:
            raise ValueError(f"schema_version {self.schema_version} is not {SCHEMA_VERSION}")
        states = {cell.state for cell in (*self.solo, *self.pairs)}
        if self.complete and "unknown" in states:
            raise ValueError("a complete measurement has no unknown cell")
        if (self.simulated and "measured" in states) or (not self.simulated and "simulated" in states):
            raise ValueError(f"simulated is {self.simulated}, but cells are {', '.join(sorted(states))}")


# --- events ----------------------------------------------------------------------------------------

EventKind: TypeAlias = Literal[
    "tenant_appeared",
    "tenant_left",
    "server_changed",
    "server_fault",
    "client_waiting",
    "service_escaped",
    "daemon_down",
    "daemon_up",
    "sweep_started",
    "sweep_finished",
    "sweep_refused",
    "sweep_failed",
    "client_stuck",
    "paused",
    "resumed",
    "started",
    "stopped",
    "configuration_reloaded",
    "configuration_rejected",
]


class Event(Document, frozen=True, kw_only=True):
    """Something that happened: a line of the journal."""

    kind: EventKind
    at: datetime
    host: str
    message: str
    simulated: bool = False
    daemon: str | None = None
    gpu_uuid: str | None = None
    plan: str | None = None
    run_id: str | None = None
    reason: Reason | None = None
    details: dict[str, Any] = {}


# --- history ---------------------------------------------------------------------------------------

Standing: TypeAlias = Literal["usual", "slower_once", "below", "explained", "above", "unknown"]
"""How a run stands against its own history (docs/history.md): `below` and `above` are two runs in a row."""


Quantity: TypeAlias = Literal["tflops", "burst", "sustained"]
"""What of a cell: the reference's throughput, or one of the two figures of `thorough`. They share no history."""

QUANTITIES: tuple[Quantity, ...] = ("tflops", "burst", "sustained")


class CapStanding(Document, frozen=True, kw_only=True):
    """One cap of a run beside its own history. TFLOPS; `low` to `high` is what the `runs` runs before it call usual.

    `unknown` has its reason (a history that is too short has `runs` and the run's own `tflops` all the same).
    `explained_by` names who came or left, where that is why the run is not judged.
    """

    cap: str
    standing: Standing
    quantity: Quantity = "tflops"
    unknown_reason: str | None = None
    tflops: float | None = None
    median: float | None = None
    low: float | None = None
    high: float | None = None
    runs: int = 0
    explained_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.standing == "unknown") != (self.unknown_reason is not None):
            raise ValueError(f"standing {self.standing!r} does not go with unknown_reason {self.unknown_reason!r}")


class PastRun(Document, frozen=True, kw_only=True):
    """An earlier run of the same series; None for a cap without a number."""

    run_id: str
    at: datetime
    tflops: dict[str, float | None]


class HistoryLook(Document, frozen=True, kw_only=True):
    """How one run stands against the earlier ones of its series, the newest of which are in `previous` (oldest first).

    `daemon`, `gpu_uuid` and `plan` are the run's own; `unreadable` counts files of the archive that are no runs that
    this version reads: they are in no history.
    """

    kind: Literal["history"] = "history"
    host: str
    daemon: str
    gpu_uuid: str
    plan: str
    run_id: str
    judged_at: datetime
    simulated: bool
    caps: tuple[CapStanding, ...]
    previous: tuple[PastRun, ...]
    unreadable: int = 0


Fact: TypeAlias = PollSnapshot | SweepDocument | InterferenceDocument | Event | HistoryLook


# --- JSON in and out -------------------------------------------------------------------------------


class DocumentError(ValueError):
    """Bytes that are not the document they should be; the message names the place."""


_encoder = msgspec.json.Encoder(order="deterministic", decimal_format="string")

D = TypeVar("D", bound=Document)


def to_json(document: Document, *, indent: int = 0) -> bytes:
    """`document` as UTF-8 JSON; `indent` spaces a level, 0 for one line."""
    encoded = _encoder.encode(document)
    return msgspec.json.format(encoded, indent=indent) if indent else encoded


def from_json(data: bytes, kind: type[D]) -> D:
    """Read a document of `kind`, or raise `DocumentError` with the place of the fault."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(str(error)) from None


def json_schema(kind: type[Document]) -> dict[str, Any]:
    """The published JSON Schema (draft 2020-12) of a document type."""
    schema = msgspec.json.schema(kind)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
