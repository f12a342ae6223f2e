"""`mpswatch poll`."""

from __future__ import annotations

import os
import sys

import click

from mpswatch.cli.options import AS_JSON, LOG_FORMAT, LOG_LEVEL, Source, configured


@click.command("poll")
@configured(LOG_LEVEL, LOG_FORMAT, AS_JSON)
def command(*, source: Source, as_json: bool) -> None:
    """Look once: who is managed by MPS, who else is on the GPU. Measures nothing.

    Exits 1 when a source did not answer.
    """
    from mpswatch.cli import show  # noqa: PLC0415 - loads after the arguments are right
    from mpswatch.daemon.exit import Exit  # noqa: PLC0415
    from mpswatch.daemon.parts import any_rehearsal, make_parts  # noqa: PLC0415
    from mpswatch.documents import to_json  # noqa: PLC0415

    config = source.load()
    snapshot = make_parts(config, simulated=any_rehearsal(config)).poller.look()
    if as_json:
        sys.stdout.buffer.write(to_json(snapshot, indent=2) + b"\n")
    else:
        show.print_poll(snapshot, show.console())
    sys.stdout.flush()
    answered = {look.source for look in snapshot.sources if look.success}
    for look in snapshot.sources:
        if not look.success:
            click.echo(
                f"mpswatch: {look.source} {look.daemon}: {look.reason}: {look.detail}".replace(" :", ":"), err=True
            )
    gpu_known = answered & {"nvml", "nvidia-smi"}
    mps_known = all(look.success for look in snapshot.sources if look.source == "mps")
    os._exit(Exit.OK if gpu_known and mps_known else Exit.FAILED)  # a hung NVML call must not hold the exit
