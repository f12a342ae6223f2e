"""`mpswatch interference`."""

from __future__ import annotations

from typing import Any

import click

from mpswatch.cli.measuring import measure, measuring
from mpswatch.cli.options import Source

CAPS = click.option("--caps", metavar="LIST", help="Percentages of victims and aggressors, such as 25,50,75,100.")


@click.command("interference")
@measuring(CAPS)
def command(*, source: Source, caps: str | None, **asked: Any) -> None:  # noqa: ANN401 - click's parameters
    """Measure what pairs of our own capped clients cost each other, and archive the matrix.

    Each victim works alone beside the stack as it is, then beside an aggressor at each cap, then alone again; compute,
    memory bandwidth and launch latency are paired at one cap. The GPU is under load for about a minute: the services
    on it feel that. Ctrl-C ends it in order, as in `mpswatch sweep`, and the exit codes are the same.
    """
    source.overrides["interference.caps"] = caps
    measure(source, plan="interference", **asked)
