"""`mpswatch doctor`."""

from __future__ import annotations

import json
import os
import sys

import click

from mpswatch.cli.options import ARCHIVE, AS_JSON, LISTEN, WEB_FILE, Source, configured

MARKS = {"good": "ok  ", "mend": "MEND", "note": "note"}


@click.command("doctor")
@configured(ARCHIVE, LISTEN, WEB_FILE, AS_JSON)
def command(*, source: Source, as_json: bool) -> None:
    """Say whether sweeps will run here, then line by line what this host has and lacks, with the remedy.

    Exits 0 when sweeps will run (or will as soon as something passes by itself), else 1.
    """
    from mpswatch.daemon.doctor import examine  # noqa: PLC0415 - loads after the arguments are right
    from mpswatch.daemon.exit import Exit  # noqa: PLC0415
    from mpswatch.daemon.parts import any_rehearsal, make_parts  # noqa: PLC0415
    from mpswatch.names import printable  # noqa: PLC0415

    config = source.load()
    report = examine(make_parts(config, simulated=any_rehearsal(config)))
    will_run = report.verdict.good or report.verdict.later
    if as_json:
        plain = {
            "verdict": _here(str(report.verdict)),
            "sweeps_will_run": will_run,
            "lines": [line._replace(remedy=line.remedy and _here(line.remedy))._asdict() for line in report.lines],
        }
        click.echo(json.dumps(plain, indent=2))
    else:
        click.echo(printable(_here(str(report.verdict))))
        click.echo()
        for line in report.lines:
            click.echo(f"{MARKS[line.mark]}  {line.what}: {printable(line.detail)}")
            if line.remedy is not None and line.mark != "good":
                click.echo(f"        {printable(_here(line.remedy))}")
    sys.stdout.flush()
    os._exit(Exit.OK if will_run else Exit.FAILED)  # a hung NVML call must not hold the exit


def _here(text: str) -> str:
    """What sends its reader here from everywhere else, for one who is here."""
    return text.replace("see `mpswatch doctor`", "see the lines below")
