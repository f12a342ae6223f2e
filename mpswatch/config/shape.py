"""The configuration as one frozen object: what there is to set, its defaults, and what each leaf expects.

Durations are seconds, sizes are bytes. A leaf's `extra` carries how it is read and what to say when it is not
what it should be; a leaf without it is taken as YAML gave it, and checked by its type.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import time
from typing import Annotated, Any, Literal, TypeAlias, get_args

import msgspec

from mpswatch.config import units
from mpswatch.documents import WorkKind


def _leaf(read: Callable[[object], object], expected: str) -> msgspec.Meta:
    return msgspec.Meta(extra={"read": read, "expected": expected})


def _some_of(words: tuple[str, ...]) -> msgspec.Meta:
    return _leaf(units.some_of(*words), f"a list of {', '.join(words)}")


Duration: TypeAlias = Annotated[float, _leaf(units.duration, "a duration such as 15s, 1h30m or a number of seconds")]
PositiveDuration: TypeAlias = Annotated[
    float, _leaf(units.positive_duration, "a duration above 0, such as 15s, 1h30m or a number of seconds")
]
Size: TypeAlias = Annotated[int, _leaf(units.size, "a size such as 10GiB, 500MB or a number of bytes")]
Caps: TypeAlias = Annotated[tuple[str, ...], _leaf(units.caps, "percentages within 1 to 100, such as 100,50,25")]
QuietHours: TypeAlias = Annotated[
    tuple[tuple[time, time], ...], _leaf(units.quiet_hours, "spans such as 22:00-06:00, in quotes")
]
Address: TypeAlias = Annotated[
    tuple[str, int], _leaf(units.listen_address, "HOST:PORT, such as 127.0.0.1:10677, or :10677 for all interfaces")
]
HostName: TypeAlias = Annotated[str, _leaf(units.host_name, "a host's name")]
Text: TypeAlias = Annotated[str, _leaf(units.text, "a text on one line")]
Groups: TypeAlias = Annotated[tuple[str, ...], _some_of(units.GROUPS)]
Kinds: TypeAlias = Annotated[tuple[WorkKind, ...], _some_of(get_args(WorkKind))]
Words: TypeAlias = Annotated[tuple[str, ...], _leaf(units.words, "a list of texts")]
Variables: TypeAlias = Annotated[dict[str, str], _leaf(units.environment, "a map of variables to texts")]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, extra={"expected": "a whole number of at least 0"})]
PositiveCount: TypeAlias = Annotated[int, msgspec.Meta(ge=1, extra={"expected": "a whole number of at least 1"})]
MatrixSize: TypeAlias = Annotated[
    int, msgspec.Meta(ge=16, le=65536, extra={"expected": "a whole number from 16 to 65536"})
]
Iterations: TypeAlias = Annotated[
    int, msgspec.Meta(ge=1, le=10_000_000, extra={"expected": "a whole number from 1 to 10000000"})
]
UserId: TypeAlias = Annotated[
    int, msgspec.Meta(ge=0, le=4294967294, extra={"expected": "a user's number, from 0 to 4294967294"})
]
Ratio: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=1, extra={"expected": "a ratio above 0 and up to 1"})]


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every section."""


class DaemonEntry(Section, frozen=True, kw_only=True):
    """One control daemon to watch: `name` is the metrics' `daemon` label, the pipe directory where it is not set."""

    pipe_directory: Text
    name: Text | None = None
    log_directory: Text | None = None


class GpuSection(Section, frozen=True, kw_only=True):
    source: Literal["auto", "nvml", "nvidia-smi"] = "auto"
    nvidia_smi: Text = "nvidia-smi"
    deadline: PositiveDuration = 5.0


class MpsSection(Section, frozen=True, kw_only=True):
    control_program: Text = "nvidia-cuda-mps-control"
    deadline: PositiveDuration = 5.0


class PollSection(Section, frozen=True, kw_only=True):
    interval: PositiveDuration = 15.0


class ClientSection(Section, frozen=True, kw_only=True):
    """How the measuring client runs: torch often lives in another environment than the daemon, or in a container."""

    runtime: Literal["process", "docker", "podman", "command"] = "process"
    uid: UserId | None = None
    image: Text | None = None
    container: Text | None = None
    program: Text | None = None
    arguments: Words = ()
    command: Words = ()
    python: Text | None = None
    environment: Variables = {}


class ThoroughSection(Section, frozen=True, kw_only=True):
    """The plan `thorough`: `interval` None is never by itself. The rest is `sweep.plan.Thorough`'s."""

    interval: PositiveDuration | None = None
    passes: PositiveCount = 3
    rest: Duration = 0.15
    settle_most: PositiveDuration = 0.8
    sustain: PositiveDuration = 0.3
    rounds_least: PositiveCount = 3
    rounds_most: PositiveCount = 4
    interval_width: Ratio = 0.01
    budget: PositiveDuration = 25.0


class InterferenceSection(Section, frozen=True, kw_only=True):
    """Pairs of our own clients beside each other: `interval` None is never by itself."""

    interval: PositiveDuration | None = None
    caps: Caps = ("25", "50", "75", "100")
    kinds: Kinds = ("matmul", "stream", "launch")
    mixed_cap: PositiveCount = 50
    settle: PositiveDuration = 0.3
    window: PositiveDuration = 0.5
    deadline: PositiveDuration = 300.0


class SweepSection(Section, frozen=True, kw_only=True):
    enabled: bool = True
    interval: PositiveDuration = 3600.0
    jitter: Duration = 60.0
    caps: Caps = ("100", "75", "50", "25", "10")
    size: MatrixSize = 4096
    iters: Iterations = 80
    dtype: Literal["fp16", "bf16", "fp32"] = "fp16"
    settle: Duration = 120.0
    headroom: Count = 4
    context_limit: PositiveCount = 48
    fault_quiet: Duration = 600.0
    stack_uid: UserId | None = None
    max_utilization: Ratio | None = None
    quiet_hours: QuietHours = ()
    time_zone: Text = "UTC"
    cell_deadline: PositiveDuration = 30.0
    deadline: PositiveDuration = 300.0
    client: ClientSection = ClientSection()
    thorough: ThoroughSection = ThoroughSection()


class RemoteSection(Section, frozen=True, kw_only=True):
    """Where runs are copied to besides: any fsspec URL. Credentials come from the environment."""

    url: Text | None = None
    interval: PositiveDuration = 900.0
    deadline: PositiveDuration = 300.0


class MatchSection(Section, frozen=True, kw_only=True):
    """A pattern: each field a shell pattern, and all that are given must match. `label` is KEY=VALUE."""

    unit: Text | None = None
    container: Text | None = None
    pod: Text | None = None
    namespace: Text | None = None
    image: Text | None = None
    user: Text | None = None
    slurm_job: Text | None = None
    process: Text | None = None
    command: Text | None = None
    label: Text | None = None


class ExpectedEntry(Section, frozen=True, kw_only=True):
    """A service of which at least `minimum` processes must be MPS clients."""

    name: Text
    match: MatchSection
    minimum: Count = 1


class WelcomeEntry(Section, frozen=True, kw_only=True):
    """Foreign tenants that nobody needs to be told of."""

    name: Text
    match: MatchSection


class TenantsSection(Section, frozen=True, kw_only=True):
    """Who ought to be managed, and who is welcome not to be. `desktop` is the default list of compositors."""

    expected: tuple[ExpectedEntry, ...] = ()
    welcome: tuple[WelcomeEntry, ...] = ()
    desktop: bool = True
    host_root: Text = "/"


class ArchiveSection(Section, frozen=True, kw_only=True):
    directory: Text
    gzip: bool = False
    keep_age: PositiveDuration | None = None
    keep_bytes: Size | None = None
    deadline: PositiveDuration = 10.0
    remote: RemoteSection = RemoteSection()


class WebSection(Section, frozen=True, kw_only=True):
    listen_address: Address = ("127.0.0.1", 10677)
    config_file: Text | None = None


class MetricsSection(Section, frozen=True, kw_only=True):
    tenant_names: Count = 20
    tenant_groups: Groups = ()
    pid_labels: bool = False


class LogSection(Section, frozen=True, kw_only=True):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "text"] = "auto"


class Config(Section, frozen=True, kw_only=True):
    """Everything that there is to set. Where a default depends on the environment, reading fills it in.

    `daemons` None is `auto`: those that run here.
    """

    host: HostName
    daemons: tuple[DaemonEntry, ...] | None
    archive: ArchiveSection
    gpu: GpuSection = GpuSection()
    mps: MpsSection = MpsSection()
    poll: PollSection = PollSection()
    tenants: TenantsSection = TenantsSection()
    sweep: SweepSection = SweepSection()
    interference: InterferenceSection = InterferenceSection()
    web: WebSection = WebSection()
    metrics: MetricsSection = MetricsSection()
    log: LogSection = LogSection()


def as_plain(config: Config) -> dict[str, Any]:
    """The configuration in force as plain data, for people (`check-config --json`)."""
    plain: dict[str, Any] = msgspec.to_builtins(config)
    return plain if config.daemons is not None else {**plain, "daemons": "auto"}
