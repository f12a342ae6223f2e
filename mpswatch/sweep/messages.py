"""The lines that the launcher and its children write: typed, bounded, and nothing else.

Everything that comes through here was written by another process. A line that is not exactly one of these messages is
nonsense, and ends the conversation (reason `client_nonsense`): no number is ever taken out of a line half understood.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import msgspec

from mpswatch.names import clip, printable

LINE_BYTES = 4096
"""No line is longer, its newline included."""

Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=86400)]
Positive: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=86400)]
Pid: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=2048)]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the messages; keys that a later client adds are ignored."""


class Ready(Message, frozen=True, kw_only=True):
    """The launcher has imported its library and holds the lock. `facts` are its other words about itself."""

    pid: Pid
    python: Text
    import_seconds: Seconds
    lock: Text
    torch: Text | None = None
    numpy: Text | None = None
    facts: dict[str, str] = {}


class Forked(Message, frozen=True, kw_only=True):
    """A child exists; `pid` as the launcher's pid namespace numbers it."""

    order: Count
    cap: Text
    pid: Pid


class Gone(Message, frozen=True, kw_only=True):
    """The child has left; `exit` or `signal` says how."""

    order: Count
    cap: Text
    pid: Pid
    status: int
    exit: int | None = None
    signal: int | None = None


class Attached(Message, frozen=True, kw_only=True):
    """The child has a context, and no work has run; `pid` is what it calls itself."""

    order: Count
    cap: Text
    pid: Pid
    sm_count: Annotated[int, msgspec.Meta(ge=1, le=100_000)]
    device_uuid: Text | None = None
    device_name: Text | None = None
    timings: dict[str, Seconds] = {}
    environment: dict[str, str] = {}


class PiecesSaid(Message, frozen=True, kw_only=True):
    """How the child queued its work: seconds, and ratio of time without work in the queue."""

    count: Count
    in_flight_most: Count
    longest_unwatched: Seconds
    gap_ratio: Annotated[float, msgspec.Meta(ge=0, le=1)]
    host_bound: bool


class SustainedSaid(Message, frozen=True, kw_only=True):
    """Work under load: seconds per kernel, one entry a block, taken after settling (or after giving up on that)."""

    samples: Annotated[tuple[Positive, ...], msgspec.Meta(max_length=1000)]
    settled: bool
    settle_seconds: Seconds
    seconds: Seconds
    iterations: Count
    gap_ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0


class Running(Message, frozen=True, kw_only=True):
    """The child begins to work under load, and goes on until it is told that it is enough."""

    order: Count
    cap: Text


class Result(Message, frozen=True, kw_only=True):
    """What the child measured: `seconds` over exactly the iterations asked for, drained by now.

    `passes` are all measured passes of a cell that asked for several. `phases` are when it took what
    (time.monotonic, which is one clock for all processes of a host).
    """

    order: Count
    cap: Text
    seconds: Positive
    clock: Text
    dtype: Text
    samples: Annotated[tuple[Positive, ...], msgspec.Meta(max_length=1000)] = ()
    timings: dict[str, Seconds] = {}
    pieces: PiecesSaid | None = None
    warm_up_iterations: Count | None = None
    input_values: Text | None = None
    passes: Annotated[tuple[Positive, ...], msgspec.Meta(max_length=100)] = ()
    sustained: SustainedSaid | None = None
    phases: dict[str, tuple[float, float]] = {}
    kind: Text = "matmul"
    bytes_each: Count | None = None


class Failed(Message, frozen=True, kw_only=True):
    """The launcher (no `order`) or a child could not go on; it drains and leaves by itself."""

    phase: Text
    reason: Text
    detail: str = ""
    order: Count | None = None
    cap: Text | None = None


Said: TypeAlias = Ready | Forked | Gone | Attached | Running | Result | Failed

_KINDS: Mapping[str, type[Said]] = {
    "ready": Ready,
    "forked": Forked,
    "gone": Gone,
    "attached": Attached,
    "running": Running,
    "result": Result,
    "failed": Failed,
}

_lines = msgspec.json.Decoder(dict[str, dict[str, Any]])


class NonsenseError(ValueError):
    """A line that is none of the messages; the text says where it went wrong."""


def read(line: bytes) -> Said:
    """One line, without its newline, as a message; `NonsenseError` for anything else."""
    try:
        said = _lines.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NonsenseError(str(error)) from None
    if len(said) != 1:
        raise NonsenseError(f"{len(said)} messages on one line")
    ((name, content),) = said.items()
    if name not in _KINDS:
        raise NonsenseError("a message of no known kind")
    if name == "ready":
        content = {**content, "facts": _facts(content)}
    try:
        return msgspec.convert(content, _KINDS[name])
    except msgspec.ValidationError as error:
        raise NonsenseError(f"{name}: {error}") from None


def _facts(content: Mapping[str, Any]) -> dict[str, str]:
    """What the launcher says about itself and we do not interpret: short scalars, as text."""
    told = {key: value for key, value in content.items() if isinstance(value, str | int | float | bool)}
    return {clip(printable(key), 64): clip(printable(str(value))) for key, value in list(told.items())[:32]}


def write(message: Mapping[str, object]) -> bytes:
    """A message of ours as one line."""
    return msgspec.json.encode(message) + b"\n"
