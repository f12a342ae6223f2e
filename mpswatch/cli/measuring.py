"""What `sweep` and `interference` share as commands: their options, and how they leave."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NoReturn

import click

from mpswatch.cli.options import ARCHIVE, AS_JSON, LOG_FORMAT, LOG_LEVEL, Command, Source, configured

DAEMON = click.option("--daemon", metavar="NAME", help="Only under this control daemon.")
GPU = click.option("--gpu", metavar="UUID", help="Only this GPU (the beginning of its UUID is enough).")


def measuring(*options: Command) -> Callable[[Command], Command]:
    """`--daemon`, `--gpu`, the given options, and those of the configuration and the output."""
    return configured(DAEMON, GPU, *options, ARCHIVE, LOG_LEVEL, LOG_FORMAT, AS_JSON)


def measure(source: Source, *, plan: str, as_json: bool, daemon: str | None, gpu: str | None) -> NoReturn:
    """Measure `plan` once, and leave with the code that says how it went."""
    from mpswatch.cli.sweeping import sweep_now  # noqa: PLC0415 - loads after the arguments are right
    from mpswatch.daemon.parts import any_rehearsal  # noqa: PLC0415

    config = source.load({"log.level": "warning"})
    simulated = any_rehearsal(config)
    code = sweep_now(config, simulated=simulated, trigger="command", as_json=as_json, plan=plan, daemon=daemon, gpu=gpu)
    os._exit(code)  # a hung NVML call must not hold the exit
