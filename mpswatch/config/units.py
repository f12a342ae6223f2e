"""Leaves that are written for people: durations, sizes, caps, times of day, addresses.

Each parser takes what YAML or a command-line flag gave and returns the value, or raises `UnfitError` with
what it found wrong. What is expected of a leaf is said once, beside its type in shape.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import time
from typing import TypeVar

_LONGEST_NAME = 253  # of a name in the DNS
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]iB|[kMGT]?B)?")
_BYTES: dict[str | None, int] = {
    None: 1,
    "B": 1,
    **{f"{letter}iB": 1024**power for power, letter in enumerate("KMGT", start=1)},
    **{f"{letter}B": 1000**power for power, letter in enumerate("kMGT", start=1)},
}
_LONGEST = 100 * 365 * 86400.0  # what a time span or a date can still be added to, and nobody means more
_LARGEST = 1 << 60
_QUIET = re.compile(r"(\d\d):(\d\d)\s*-\s*(\d\d):(\d\d)")


T = TypeVar("T")


class UnfitError(ValueError):
    """A leaf that is not what is expected; the message says what is wrong with it, all of it."""


def _each(parts: Iterable[object], read: Callable[[object], T]) -> tuple[T, ...]:
    """Read every part; what is wrong with any of them is said at once."""
    found, faults = [], []
    for part in parts:
        try:
            found.append(read(part))
        except UnfitError as error:
            faults.append(str(error))
    if faults:
        raise UnfitError("; ".join(faults))
    return tuple(found)


def _number(raw: object) -> float | None:
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return None
    try:
        return float(raw)
    except OverflowError:
        return float("inf")


def duration(raw: object) -> float:
    """`15s`, `1h30m`, `250ms`, or a number of seconds; in seconds, at least 0."""
    number = _number(raw)
    if number is None and isinstance(raw, str):
        text = raw.strip()
        if _DURATION.fullmatch(text):
            number = sum(float(amount) * _SECONDS[unit] for amount, unit in _DURATION_PART.findall(text))
        elif re.fullmatch(r"\d+(?:\.\d+)?", text):
            number = float(text)
    if number is None or not 0 <= number < float("inf"):
        raise UnfitError("not a duration")
    if number > _LONGEST:
        raise UnfitError("longer than a hundred years")
    return number


def positive_duration(raw: object) -> float:
    """A duration above 0, in seconds."""
    seconds = duration(raw)
    if not seconds > 0:
        raise UnfitError("must be above 0")
    return seconds


def host_name(raw: object) -> str:
    """A host's name: it is shown everywhere, and names files of the archive."""
    if not isinstance(raw, str) or not raw:
        raise UnfitError("not a text")
    if len(raw) > _LONGEST_NAME:
        raise UnfitError(f"longer than {_LONGEST_NAME} characters")
    if not raw.isprintable() or any(one.isspace() or one in "/\\" for one in raw):
        raise UnfitError("has a space, a slash, or a character that cannot be seen")
    return raw


def size(raw: object) -> int:
    """`10GiB`, `500MB`, or a number of bytes."""
    number = _number(raw)
    if number is not None:
        if not 0 <= number < float("inf") or number != int(number):
            raise UnfitError("not a whole number of bytes")
    else:
        matched = _SIZE.fullmatch(raw.strip()) if isinstance(raw, str) else None
        if matched is None:
            raise UnfitError("not a size")
        number = float(matched[1]) * _BYTES[matched[2]]
    if number > _LARGEST:
        raise UnfitError("more than an EiB")
    return int(number)


def caps(raw: object) -> tuple[str, ...]:
    """`100,75,50` or a list; each as its shortest decimal string, within 1-100, none twice."""
    from mpswatch.sweep.plan import PlanError, canonical_caps  # noqa: PLC0415 - no command reads caps without need

    parts = raw.split(",") if isinstance(raw, str) else raw if isinstance(raw, list) else [raw]
    try:
        return canonical_caps(parts)
    except PlanError as error:
        raise UnfitError(error.detail) from None


def quiet_hours(raw: object) -> tuple[tuple[time, time], ...]:
    """`22:00-06:00`, or a list of such; each from its start up to its end, over midnight where end <= start."""
    return _each(raw if isinstance(raw, list) else [raw], _span)


def _span(raw: object) -> tuple[time, time]:
    matched = _QUIET.fullmatch(raw.strip()) if isinstance(raw, str) else None
    if matched is None:
        raise UnfitError(f"{raw!r} is not a span")
    hour, minute, end_hour, end_minute = (int(group) for group in matched.groups())
    try:
        start, end = time(hour, minute), time(end_hour, end_minute)
    except ValueError:
        raise UnfitError(f"{raw!r} is not a time of day") from None
    if start == end:
        raise UnfitError(f"{raw!r} is empty: to hold sweeps altogether set sweep.enabled: false")
    return start, end


def listen_address(raw: object) -> tuple[str, int]:
    """`127.0.0.1:10677`, `[::1]:10677`, `:10677` (all interfaces); port 0 takes a free one."""
    if not isinstance(raw, str):
        raise UnfitError("not an address")
    host, colon, port = raw.strip().rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise UnfitError("no port from 0 to 65535 behind the last colon")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise UnfitError("an IPv6 address stands in brackets")
    return host, int(port)


def text(raw: object) -> str:
    """A string that is not empty and holds no NUL or line break (it becomes a path, an argument or a label)."""
    if not isinstance(raw, str) or not raw.strip():
        raise UnfitError("not a text")
    if any(character in raw for character in "\0\n\r"):
        raise UnfitError("holds a NUL or a line break")
    return raw


GROUPS = ("unit", "container", "pod", "namespace", "image", "user", "slurm_job")
"""What metrics may sum tenants by."""


def some_of(*known: str) -> Callable[[object], tuple[str, ...]]:
    """Make the reader of a list of these words, each once."""

    def word(raw: object) -> str:
        if not isinstance(raw, str) or raw not in known:
            raise UnfitError(f"{raw!r} is none of them")
        return raw

    return lambda raw: tuple(dict.fromkeys(_each(_list(raw), word)))


def _list(raw: object) -> list[object]:
    if not isinstance(raw, list):
        raise UnfitError("not a list")
    return raw


def words(raw: object) -> tuple[str, ...]:
    """A list of texts: the words of a command."""
    return _each(_list(raw), text)


def environment(raw: object) -> dict[str, str]:
    """Variables for the client's interpreter. What is dangerous in there is refused by name."""
    from mpswatch.sweep.runtime import refused_variables  # noqa: PLC0415 - no command reads it without need

    if not isinstance(raw, dict):
        raise UnfitError("not a map of variables")
    refused = refused_variables([name for name in raw if isinstance(name, str)])

    def variable(name: object) -> tuple[str, str]:
        value = raw[name]
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise UnfitError(f"{name!r} is not a variable's name")
        if name in refused:
            raise UnfitError(f"{name}: set by mpswatch, or changes what is measured")
        if not isinstance(value, str) or "\0" in value:
            raise UnfitError(f"{name}: the value must be a text (put it in quotes)")
        return name, value

    return dict(_each(raw, variable))
