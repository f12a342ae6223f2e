"""One frozen configuration, from defaults, a YAML file and flags; every fault reported at once."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from mpswatch.config.convert import Conversion
from mpswatch.config.problems import ConfigError
from mpswatch.config.rules import contradictions
from mpswatch.config.shape import Config, DaemonEntry
from mpswatch.yaml_tree import Place, Problem, UnreadableError, read_file, read_yaml

__all__ = ["Config", "ConfigError", "Problem", "default_daemon", "default_state_directory", "example", "load"]


def load(
    path: Path | None = None,
    overrides: Mapping[str, object] | None = None,
    *,
    base: Mapping[str, object] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Config:
    """The configuration in force.

    `overrides` (flags) go before the file, the file before `base`, `base` before the defaults; both are maps of
    dotted keys (`web.listen_address`) to what YAML would hold. Raises `ConfigError` with every fault.
    """
    source = str(path) if path is not None else "configuration"
    tree, lines = _read_file(path, source)
    for key, value in (base or {}).items():
        _put(tree, key, value, keep=True)
    for key, value in (overrides or {}).items():
        if value is not None:
            _put(tree, key, value, keep=False)
            lines.pop(tuple(key.split(".")), None)
    _fill_in(tree, environ)
    conversion = Conversion(lines)
    config = conversion.section(Config, tree)
    if config is not None:
        for place, message in contradictions(config):
            conversion.complain(place, message)
    if config is None or conversion.problems:
        raise ConfigError(source, conversion.problems)
    return config


def example() -> str:
    """The commented example file that ships with the package; `check-config` accepts it."""
    return (Path(__file__).parent / "example.yml").read_text(encoding="utf-8")


def default_state_directory(environ: Mapping[str, str] = os.environ) -> str:
    """Where the archive is when nobody says: systemd's state directory, root's, or the user's own."""
    given = environ.get("STATE_DIRECTORY", "").split(":")[0]
    if given:
        return given
    if os.geteuid() == 0:
        return "/var/lib/mpswatch"
    home = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME") or "/nonexistent") / ".local/state")
    return str(Path(home) / "mpswatch")


def _read_file(path: Path | None, source: str) -> tuple[dict[str, Any], dict[Place, int]]:
    if path is None:
        return {}, {}
    try:
        tree, lines, problems = read_yaml(read_file(path))
    except UnreadableError as error:
        raise ConfigError(source, [Problem("", str(error))]) from None
    if not problems and not isinstance(tree, dict):
        problems = [Problem("", "holds no keys: expected sections such as sweep: or web:")]
    if problems:
        raise ConfigError(source, problems)
    return tree, lines


def _put(tree: dict[str, Any], key: str, value: object, *, keep: bool) -> None:
    """Set `key` in `tree`; a section that is not one is left for the conversion to complain about."""
    *sections, last = key.split(".")
    for section in sections:
        below = tree.get(section)
        if below is None:
            below = tree[section] = {}
        if not isinstance(below, dict):
            return
        tree = below
    if not (keep and last in tree):
        tree[last] = value


def default_daemon(environ: Mapping[str, str] = os.environ) -> DaemonEntry:
    """The control daemon that is watched when nobody names one: by its own variables and defaults."""
    return DaemonEntry(
        pipe_directory=environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps",  # noqa: S108
        log_directory=environ.get("CUDA_MPS_LOG_DIRECTORY") or "/var/log/nvidia-mps",
    )


def _fill_in(tree: dict[str, Any], environ: Mapping[str, str]) -> None:
    """Defaults that depend on where we run."""
    if tree.get("host") is None:
        # a pod's own name changes with every restart: the chart hands over its node's
        tree["host"] = environ.get("MPSWATCH_HOST") or socket.gethostname() or "localhost"
    if tree.get("daemons") is None:
        tree["daemons"] = [msgspec.to_builtins(default_daemon(environ))]
    elif tree["daemons"] == "auto":
        tree["daemons"] = None
    archive = tree.setdefault("archive", {})
    if archive is None:
        archive = tree["archive"] = {}
    if isinstance(archive, dict) and archive.get("directory") is None:
        archive["directory"] = default_state_directory(environ)
