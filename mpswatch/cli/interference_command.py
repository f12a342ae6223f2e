"""`mpswatch interference`."""

from __future__ import annotations

import os

import click

from mpswatch.cli.options import ARCHIVE, AS_JSON, LOG_FORMAT, LOG_LEVEL, Source, configured


@click.command("interference")
@click.option("--daemon", metavar="NAME", help="Only under this control daemon.")
@click.option("--gpu", metavar="UUID", help="Only this GPU (the beginning of its UUID is enough).")
@click.option("--caps", metavar="LIST", help="Percentages of victims and aggressors, such as 25,50,75,100.")
@configured(ARCHIVE, LOG_LEVEL, LOG_FORMAT, AS_JSON)
def command(*, source: Source, daemon: str | None, gpu: str | None, caps: str | None, as_json: bool) -> None:
    """Measure what pairs of our own capped clients cost each other, and archive the matrix.

    Each victim works alone beside the stack as it is, then beside an aggressor at each cap, then alone again; compute,
    memory bandwidth and launch latency are paired at one cap. The GPU is under load for about a minute: the services
    on it feel that. Ctrl-C ends it in order, as in `mpswatch sweep`, and the exit codes are the same.
    """
    from mpswatch.cli.sweeping import sweep_now  # noqa: PLC0415 - loads after the arguments are right
    from mpswatch.daemon.parts import any_rehearsal  # noqa: PLC0415

    if caps is not None:
        source.overrides["interference.caps"] = caps
    config = source.load({"log.level": "warning"})
    code = sweep_now(
        config,
        simulated=any_rehearsal(config),
        trigger="command",
        as_json=as_json,
        interference=True,
        daemon=daemon,
        gpu=gpu,
    )
    os._exit(code)  # a hung NVML call must not hold the exit
