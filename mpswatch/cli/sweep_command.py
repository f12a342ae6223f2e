"""`mpswatch sweep`."""

from __future__ import annotations

import os

import click

from mpswatch.cli.options import ARCHIVE, AS_JSON, LOG_FORMAT, LOG_LEVEL, Source, configured


@click.command("sweep")
@click.option("--daemon", metavar="NAME", help="Only under this control daemon.")
@click.option("--gpu", metavar="UUID", help="Only this GPU (the beginning of its UUID is enough).")
@click.option(
    "--plan",
    type=click.Choice(["quick", "thorough"]),
    default="quick",
    help="quick: one pass a cap. thorough: burst and sustained figures with intervals, about 15 s of GPU time.",
)
@click.option("--caps", metavar="LIST", help="Percentages, such as 100,50,25.")
@configured(ARCHIVE, LOG_LEVEL, LOG_FORMAT, AS_JSON)
def command(*, source: Source, plan: str, daemon: str | None, gpu: str | None, caps: str | None, as_json: bool) -> None:
    """Measure one sweep now, beside a running daemon or without one, and archive it.

    Ctrl-C lets the measuring client drain, writes what was measured, and exits 5; a second one leaves at once (130),
    and the client drains by itself. Exits 3 when the sweep was refused, 4 when not every cap was measured.
    """
    from mpswatch.cli.sweeping import sweep_now  # noqa: PLC0415 - loads after the arguments are right
    from mpswatch.daemon.parts import any_rehearsal  # noqa: PLC0415

    if caps is not None:
        source.overrides["sweep.caps"] = caps
    config = source.load({"log.level": "warning"})
    code = sweep_now(
        config,
        simulated=any_rehearsal(config),
        trigger="command",
        as_json=as_json,
        plan=plan,
        daemon=daemon,
        gpu=gpu,
    )
    os._exit(code)  # a hung NVML call must not hold the exit
