"""`mpswatch sweep`."""

from __future__ import annotations

from typing import Any

import click

from mpswatch.cli.measuring import measure, measuring
from mpswatch.cli.options import Source

PLAN = click.option(
    "--plan",
    type=click.Choice(["quick", "thorough"]),
    default="quick",
    help="quick: one pass a cap. thorough: burst and sustained figures with intervals, about 15 s of GPU time.",
)
CAPS = click.option("--caps", metavar="LIST", help="Percentages, such as 100,50,25.")


@click.command("sweep")
@measuring(PLAN, CAPS)
def command(*, source: Source, caps: str | None, **asked: Any) -> None:  # noqa: ANN401 - click's parameters
    """Measure one sweep now, beside a running daemon or without one, and archive it.

    Ctrl-C lets the measuring client drain, writes what was measured, and exits 5; a second one leaves at once (130),
    and the client drains by itself. Exits 3 when the sweep was refused, 4 when not every cap was measured.
    """
    source.overrides["sweep.caps"] = caps
    measure(source, **asked)
