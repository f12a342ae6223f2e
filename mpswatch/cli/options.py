"""Options that several commands share, and the configuration that they make."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from mpswatch.config import Config, load

Command = Callable[..., Any]

FILE = click.option(
    "--config.file", "config_file", type=click.Path(path_type=Path), envvar="MPSWATCH_CONFIG_FILE", metavar="FILE",
    help="Configuration file (YAML).",
)  # fmt: skip
ARCHIVE = click.option(
    "--archive", "archive", type=click.Path(), metavar="DIR", help="Directory of archive and journal."
)
LOG_LEVEL = click.option("--log.level", "log_level", metavar="LEVEL", help="debug, info, warning or error.")
LOG_FORMAT = click.option("--log.format", "log_format", metavar="FORMAT", help="auto, json or text.")
LISTEN = click.option(
    "--web.listen-address", "listen_address", metavar="HOST:PORT", help="Where to serve [default: 127.0.0.1:10677]."
)
WEB_FILE = click.option(
    "--web.config.file", "web_config_file", type=click.Path(), metavar="FILE", help="TLS and passwords (YAML)."
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print the document as JSON, and nothing else.")

_KEYS = {
    "archive": "archive.directory",
    "log_level": "log.level",
    "log_format": "log.format",
    "listen_address": "web.listen_address",
    "web_config_file": "web.config_file",
}


class Source:
    """Where a command's configuration comes from: read once at the start, and again on reload."""

    def __init__(self, file: Path | None, overrides: Mapping[str, object]) -> None:
        self.file = file
        self.overrides = dict(overrides)

    def load(self, base: Mapping[str, object] | None = None) -> Config:
        """The configuration as it stands now; raises `ConfigError` with every fault."""
        return load(self.file, self.overrides, base=base)


def configured(*options: Command) -> Callable[[Command], Command]:
    """`--config.file` and the given options, handed to the command as one `source`."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_source(*, config_file: Path | None, **given: Any) -> Any:  # noqa: ANN401 - click's parameters
            overrides = {key: given.pop(name) for name, key in _KEYS.items() if name in given}
            return command(source=Source(config_file, overrides), **given)

        for option in reversed((FILE, *options)):
            with_source = option(with_source)
        return with_source

    return decorate


DAEMON_OPTIONS = (ARCHIVE, LISTEN, WEB_FILE, LOG_LEVEL, LOG_FORMAT)
"""What `run` and `demo` take besides their own."""
