"""Which services must be managed by MPS, and which strangers are welcome: patterns, and what they match. Pure.

A service that is expected and found on the GPU outside MPS has *escaped*: the loudest case, because nothing else
tells (it runs as fast as a managed one, and shapes nobody). Expected goes before welcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import combinations
from typing import NamedTuple

import msgspec

from mpswatch.documents import ExpectationLook, Reason, Tenant, TenantIdentity

FIELDS = ("unit", "container", "pod", "namespace", "image", "user", "slurm_job", "process", "command", "label")
"""What a pattern may ask for."""

DESKTOP = (
    "Xorg", "Xwayland", "X", "gnome-shell", "gnome-remote-desktop*", "kwin_wayland", "kwin_x11", "plasmashell", "sway",
    "Hyprland", "weston", "mutter*", "cinnamon", "xfwm4", "gdm-*", "sddm-greeter*", "xdg-desktop-portal*", "niri",
    "cosmic-comp", "labwc", "gjs",
)  # fmt: skip
"""Programs of a desktop that show up as compute processes, by the last part of their path."""

DESKTOP_NAME = "desktop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Shell patterns (`*`, `?`, `[…]`) by field; all that are given must match. `label` is KEY=VALUE.

    `container` is matched by name, or by the beginning of its id. `command` is matched against the whole command line,
    unmasked. `process` is the process's name as nvidia-smi shows it, or the last part of its path.
    """

    wanted: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return ", ".join(f"{key} {value}" for key, value in self.wanted.items())

    @property
    def label_key(self) -> str | None:
        return self.wanted["label"].partition("=")[0] if "label" in self.wanted else None

    def matches(self, process: Process) -> bool:
        return all(_fits(value, process.values(key)) for key, value in self.wanted.items())

    def is_undecided(self, process: Process) -> bool:
        """Whether it may match: by all but the label, and the process may have others than are known."""
        if process.labels_known or "label" not in self.wanted or self.matches(process):
            return False
        return all(_fits(value, process.values(key)) for key, value in self.wanted.items() if key != "label")

    def covers(self, other: Pattern) -> bool:
        """Whether whatever `other` matches, this one matches too, as far as their texts tell."""
        return all(key in other.wanted and fnmatchcase(other.wanted[key], value) for key, value in self.wanted.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A service of which at least `minimum` processes must be MPS clients."""

    name: str
    pattern: Pattern
    minimum: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """Foreign tenants that nobody needs to be told of: any of `patterns`."""

    name: str
    patterns: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """All that configuration says. `welcome` are asked in order."""

    expected: tuple[Expectation, ...] = ()
    welcome: tuple[Welcome, ...] = ()

    @property
    def label_keys(self) -> frozenset[str]:
        patterns = [each.pattern for each in self.expected] + [p for each in self.welcome for p in each.patterns]
        return frozenset(key for pattern in patterns if (key := pattern.label_key) is not None)


def desktop() -> Welcome:
    """The default list: compositors and the like."""
    return Welcome(name=DESKTOP_NAME, patterns=tuple(Pattern(wanted={"process": name}) for name in DESKTOP))


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """What a pattern is held against. `arguments` are unmasked, `labels` are all there are if `labels_known`."""

    name: str | None
    identity: TenantIdentity | None
    arguments: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    labels_known: bool = True

    def values(self, key: str) -> tuple[str, ...]:
        """The texts of that field: any of them may match."""
        who = self.identity or TenantIdentity()
        found: tuple[str | None, ...]
        match key:
            case "container":
                found = (who.container_name, who.container_id, who.container_id and who.container_id[:12])
            case "pod":
                found = (who.pod_name,)
            case "namespace":
                found = (who.pod_namespace,)
            case "process":
                found = (self.name, self.name and _last(self.name), who.executable and _last(who.executable))
            case "command":
                found = (" ".join(self.arguments),) if self.arguments else (who.command_line,)
            case "label":
                found = tuple(f"{name}={value}" for name, value in self.labels.items())
            case "unit" | "image" | "user" | "slurm_job":
                found = (getattr(who, key),)
            case _:
                raise ValueError(f"no pattern has a field {key!r}")
        return tuple(value for value in found if value)


def _last(path: str) -> str:
    return path.rpartition("/")[2]


def _fits(pattern: str, values: Iterable[str]) -> bool:
    return any(fnmatchcase(value, pattern) for value in values)


class Verdict(NamedTuple):
    """The names of the expectations that a process matches, of the welcome where it matches none, and of what it may
    match: its labels are not known.
    """

    expected: tuple[str, ...] = ()
    welcome: str | None = None
    undecided: tuple[str, ...] = ()


def judged(process: Process, what: Expectations) -> Verdict:
    """What one process matches."""
    expected = tuple(each.name for each in what.expected if each.pattern.matches(process))
    undecided = tuple(each.name for each in what.expected if each.pattern.is_undecided(process))
    if expected:
        return Verdict(expected, None, undecided)
    for each in what.welcome:
        if any(pattern.matches(process) for pattern in each.patterns):
            return Verdict((), each.name, undecided)
        if any(pattern.is_undecided(process) for pattern in each.patterns):
            undecided += (each.name,)
    return Verdict((), None, undecided)


def marked(tenants: Sequence[Tenant], verdicts: Mapping[int, Verdict]) -> tuple[Tenant, ...]:
    """`tenants` with the names of what they match, by pid. Servers and our own clients match nothing."""
    return tuple(_marked(tenant, verdicts.get(tenant.pid, Verdict())) for tenant in tenants)


def _marked(tenant: Tenant, verdict: Verdict) -> Tenant:
    welcome = verdict.welcome if tenant.kind == "foreign" else None
    if tenant.kind in {"server", "ours"} or not (verdict.expected or welcome or verdict.undecided):
        return tenant
    return msgspec.structs.replace(tenant, expectations=verdict.expected, welcome=welcome, undecided=verdict.undecided)


def counted(tenants: Sequence[Tenant], what: Expectations, unknown: Reason | None) -> tuple[ExpectationLook, ...]:
    """What each pattern matched, in processes (one on two GPUs is one). `unknown` is why tenants are not all known."""
    return tuple(
        ExpectationLook(
            name=each.name,
            minimum=each.minimum,
            matched=_count(tenants, each.name),
            managed=_count(tenants, each.name, "managed"),
            escaped=_count(tenants, each.name, "foreign"),
            unresolved=_count(tenants, each.name, "unresolved"),
            unknown_reason=unknown or _unresolved_reason(tenants, each.name) or _undecided_reason(tenants, each.name),
        )
        for each in what.expected
    ) + tuple(
        ExpectationLook(
            name=each.name,
            minimum=None,
            matched=len({(t.pid, t.start_ticks) for t in tenants if t.welcome == each.name}),
            unknown_reason=unknown or _undecided_reason([t for t in tenants if t.kind == "foreign"], each.name),
        )
        for each in what.welcome
    )


def _count(tenants: Sequence[Tenant], name: str, kind: str | None = None) -> int:
    return len({(t.pid, t.start_ticks) for t in tenants if name in t.expectations and kind in {None, t.kind}})


def _unresolved_reason(tenants: Sequence[Tenant], name: str) -> Reason | None:
    return next((t.unknown.get("kind") for t in tenants if t.kind == "unresolved" and name in t.expectations), None)


def _undecided_reason(tenants: Sequence[Tenant], name: str) -> Reason | None:
    found = (t.identity.unknown.get("labels") for t in tenants if name in t.undecided and t.identity is not None)
    return next((reason or Reason.NOT_RECORDED for reason in found), None)


def contradictions(what: Expectations) -> Iterator[tuple[str, str, str]]:
    """Pairs that cannot both be meant: the two names, and what is wrong."""
    for one, other in combinations(what.expected, 2):
        if one.name == other.name:
            yield one.name, other.name, "two expectations have this name"
        elif one.pattern == other.pattern and one.minimum != other.minimum:
            yield one.name, other.name, f"the same pattern ({one.pattern}), with minimum {one.minimum}, {other.minimum}"
        elif one.pattern == other.pattern:
            yield one.name, other.name, f"the same pattern twice ({one.pattern})"
    names = {each.name for each in what.expected}
    for welcome in what.welcome:
        if welcome.name in names:
            yield welcome.name, welcome.name, "both an expectation and a welcome have this name"
        for expected in what.expected:
            for pattern in welcome.patterns:
                if pattern.covers(expected.pattern):
                    what_is = f"whatever {expected.name} expects to be managed ({expected.pattern})"
                    yield expected.name, welcome.name, f"{what_is} is welcome to be foreign ({pattern})"
    for earlier, later in combinations(what.welcome, 2):
        if earlier.name == later.name:
            yield earlier.name, later.name, "two welcomes have this name"
