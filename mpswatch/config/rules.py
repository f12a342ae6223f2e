"""Settings that contradict each other: each named together with the one it does not go with."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator
from urllib.parse import urlsplit

from mpswatch.config.shape import Config, MatchSection
from mpswatch.expectations import FIELDS, Expectation, Expectations, Pattern, Welcome, desktop
from mpswatch.expectations import contradictions as conflicts
from mpswatch.yaml_tree import Place

_DAY = 86400.0


def contradictions(config: Config) -> Iterator[tuple[Place, str]]:
    """The place of each contradiction, and what is contradicted."""
    yield from _daemons(config)
    yield from _times(config)
    yield from _sweep(config)
    yield from _remote(config)
    yield from _tenants(config)
    yield from _client(config)


def _daemons(config: Config) -> Iterator[tuple[Place, str]]:
    if config.daemons is None:
        return
    if not config.daemons:
        yield ("daemons",), "no daemon to watch: leave the key out for the default pipe directory"
    for key in ("label", "pipe_directory"):
        seen: dict[str, int] = {}
        for index, daemon in enumerate(config.daemons):
            value = (daemon.name or daemon.pipe_directory) if key == "label" else daemon.pipe_directory
            if value in seen:
                name = "name" if key == "label" else key
                yield ("daemons", index, name), f"{value!r} is already that of daemons[{seen[value]}]"
            seen.setdefault(value, index)
            if key == "pipe_directory" and not value.startswith("/"):
                yield ("daemons", index, key), f"{value!r} is not an absolute path"


def _times(config: Config) -> Iterator[tuple[Place, str]]:
    # Poll series vanish after three intervals: a question that may take longer makes them flap.
    longest = 3 * config.poll.interval
    for section, deadline in (("mps", config.mps.deadline), ("gpu", config.gpu.deadline)):
        if deadline >= longest:
            yield (section, "deadline"), f"{deadline:g}s is not below three times poll.interval ({longest:g}s)"
    sweep = config.sweep
    if sweep.cell_deadline > sweep.deadline:
        yield ("sweep", "cell_deadline"), f"{sweep.cell_deadline:g}s is above sweep.deadline ({sweep.deadline:g}s)"
    for name, seconds in (("sweep", sweep.deadline), ("interference", config.interference.deadline)):
        if seconds >= _DAY:
            yield (name, "deadline"), f"{seconds:g}s is not below a day"
    if sweep.jitter >= sweep.interval:
        yield ("sweep", "jitter"), f"{sweep.jitter:g}s is not below sweep.interval ({sweep.interval:g}s)"
    if sweep.interval < config.poll.interval:
        yield (
            ("sweep", "interval"),
            f"{sweep.interval:g}s is below poll.interval ({config.poll.interval:g}s): a sweep is decided on a poll",
        )


def _sweep(config: Config) -> Iterator[tuple[Place, str]]:
    sweep = config.sweep
    if sweep.headroom >= sweep.context_limit:
        yield (
            ("sweep", "headroom"),
            f"{sweep.headroom} is not below sweep.context_limit ({sweep.context_limit}): no sweep would ever run",
        )
    if sweep.time_zone not in {"local", "UTC"}:
        try:
            zoneinfo.ZoneInfo(sweep.time_zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            yield ("sweep", "time_zone"), f"{sweep.time_zone!r} is not a time zone this host knows (UTC, local, a name)"
    thorough = sweep.thorough
    if thorough.rounds_least > thorough.rounds_most:
        yield (
            ("sweep", "thorough", "rounds_least"),
            f"{thorough.rounds_least} is above sweep.thorough.rounds_most ({thorough.rounds_most})",
        )
    for section, interval in (
        (("sweep", "thorough"), thorough.interval),
        (("interference",), config.interference.interval),
    ):
        if interval is not None and interval < config.poll.interval:
            yield (
                (*section, "interval"),
                f"{interval:g}s is below poll.interval ({config.poll.interval:g}s): it is decided on a poll",
            )
    if sweep.enabled and sweep.quiet_hours and _whole_day(config):
        yield (
            ("sweep", "quiet_hours"),
            "cover the whole day, and sweep.enabled is true: to hold sweeps altogether set sweep.enabled: false",
        )


def _remote(config: Config) -> Iterator[tuple[Place, str]]:
    url, place = config.archive.remote.url, ("archive", "remote", "url")
    if url is None:
        return
    parts = urlsplit(url)
    if not parts.scheme:
        yield place, "is no URL: s3://bucket/path, file:///mnt/archive and the like"
    elif "@" in parts.netloc:
        yield place, "has a user or a password in it: give those in the environment, where nobody else reads them"


def expectations(config: Config) -> Expectations:
    """The patterns of `tenants`, as they are asked."""
    tenants = config.tenants
    return Expectations(
        expected=tuple(
            Expectation(name=entry.name, pattern=_pattern(entry.match), minimum=entry.minimum)
            for entry in tenants.expected
        ),
        welcome=(
            *(Welcome(name=entry.name, patterns=(_pattern(entry.match),)) for entry in tenants.welcome),
            *((desktop(),) if tenants.desktop else ()),
        ),
    )


def _pattern(match: MatchSection) -> Pattern:
    return Pattern(wanted={key: value for key in FIELDS if (value := getattr(match, key)) is not None})


def _client(config: Config) -> Iterator[tuple[Place, str]]:
    from mpswatch.sweep.runtimes import refused_arguments  # noqa: PLC0415 - as units.caps

    client = config.sweep.client
    place = ("sweep", "client")
    contained = client.runtime in {"docker", "podman"}
    if contained and (client.image is None) == (client.container is None):
        yield (
            (*place, "runtime"),
            f"{client.runtime} needs either an image to run or a container to exec into",
        )
    if client.runtime == "command" and not client.command:
        yield (*place, "command"), "is empty, and sweep.client.runtime is command"
    needed = {"image": contained, "container": contained, "program": contained, "arguments": contained}
    for key, fits in (needed | {"command": client.runtime == "command"}).items():
        if getattr(client, key) and not fits:
            yield (*place, key), f"is set, and sweep.client.runtime is {client.runtime}"
    for word in refused_arguments(client.arguments):
        yield (*place, "arguments"), f"{word}: it could end a client with work in flight"


def _tenants(config: Config) -> Iterator[tuple[Place, str]]:
    tenants = config.tenants
    if not tenants.host_root.startswith("/"):
        yield ("tenants", "host_root"), f"{tenants.host_root!r} is not an absolute path"
    empty = False
    for place, match in _matches(config):
        if not _pattern(match).wanted:
            empty = True
            yield place, f"is empty: name at least one of {', '.join(FIELDS)}"
        if match.label is not None and not match.label.partition("=")[1]:
            yield (*place, "label"), f"{match.label!r} is not KEY=VALUE"
    for one, other, what in () if empty else conflicts(expectations(config)):
        yield ("tenants",), f"{one} and {other}: {what}"


def _matches(config: Config) -> Iterator[tuple[Place, MatchSection]]:
    for index, expected in enumerate(config.tenants.expected):
        yield ("tenants", "expected", index, "match"), expected.match
    for index, welcome in enumerate(config.tenants.welcome):
        yield ("tenants", "welcome", index, "match"), welcome.match


def _whole_day(config: Config) -> bool:
    quiet = set()
    for start, end in config.sweep.quiet_hours:
        first, last = start.hour * 60 + start.minute, end.hour * 60 + end.minute
        quiet |= set(range(first, last)) if first < last else set(range(first, 1440)) | set(range(last))
    return len(quiet) == 1440
