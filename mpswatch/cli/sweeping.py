"""What `sweep`, `interference` and `demo --once` share: one measurement, shown live, ended in order by Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import click
import msgspec

from mpswatch import logs
from mpswatch.cli.group import complain
from mpswatch.cli.live import Live
from mpswatch.config import Config
from mpswatch.daemon.exit import Exit
from mpswatch.daemon.mixing import refuse_mixed_stacks
from mpswatch.daemon.once import Swept, sweep_once
from mpswatch.daemon.parts import make_parts
from mpswatch.daemon.sweeps import Outcome
from mpswatch.daemon.work_directory import make_work_directory
from mpswatch.documents import Event, InterferenceDocument, Reason, SweepDocument, to_json
from mpswatch.names import printable
from mpswatch.sweep.stop import Stop


def sweep_now(
    config: Config,
    *,
    simulated: bool,
    trigger: str,
    as_json: bool,
    plan: str = "quick",
    daemon: str | None = None,
    gpu: str | None = None,
) -> Exit:
    """One poll and one sweep (or what `plan` is called); prints the tables and the files written, or the documents."""
    logs.set_up(config.log.level, config.log.format)
    refuse_mixed_stacks(config, simulated=simulated)
    parts = make_parts(config, simulated=simulated)
    stop = Stop()
    work = make_work_directory()
    _drain_on_signals(stop, work)
    snapshot = parts.poller.look()
    swept = sweep_once(
        parts,
        snapshot,
        trigger=trigger,
        stop=stop,
        progress=Live(),
        work_directory=work,
        plan=plan,
        daemon=daemon,
        gpu=gpu,
        log=logs.get_logger().debug,
    )
    if not any(not isinstance(outcome, Event) and outcome.stuck_clients for outcome in swept.outcomes):
        shutil.rmtree(work, ignore_errors=True)  # a client that is left behind may still read its own code
    with contextlib.suppress(OSError):  # nobody reads any more, and all that matters is on the disk
        _show(swept, as_json=as_json)
    return _exit_code(swept, interrupted=stop.requested)


def _drain_on_signals(stop: Stop, work: Path) -> None:
    def asked(_number: int, _frame: FrameType | None) -> None:
        if stop.requested:
            _say(b"\nleaving at once; the client drains and leaves by itself\n")
            with contextlib.suppress(OSError):  # not empty: a client may still read its own code there
                work.rmdir()
            os._exit(Exit.LEFT_AT_ONCE)
        stop.request()
        _say(b"\nletting the client drain, then writing what was measured; again to leave at once\n")

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, asked)


def _say(text: bytes) -> None:
    with contextlib.suppress(OSError):  # a terminal that was closed
        os.write(2, text)


def _exit_code(swept: Swept, *, interrupted: bool) -> Exit:
    if interrupted:
        return Exit.INTERRUPTED
    kinds = {outcome.kind for outcome in swept.outcomes if isinstance(outcome, Event)}
    if "sweep_failed" in kinds or swept.faults:
        return Exit.FAILED
    if kinds:
        return Exit.REFUSED
    whole = all(_is_whole(outcome) for outcome in swept.outcomes)
    return Exit.OK if whole else Exit.PARTIAL


def _is_whole(outcome: Outcome) -> bool:
    if isinstance(outcome, InterferenceDocument):
        return outcome.complete
    return isinstance(outcome, SweepDocument) and outcome.complete_sweep


def _show(swept: Swept, *, as_json: bool) -> None:
    if as_json:
        _print_json(swept)
    else:
        _print(swept)
    for outcome in swept.outcomes:
        if isinstance(outcome, Event):
            _complain(outcome)
    for fault in swept.faults:
        complain(fault)
    sys.stdout.flush()


def _print(swept: Swept) -> None:
    from mpswatch.cli import show, show_interference  # noqa: PLC0415 - rich is for those who draw

    out = show.console()
    for outcome in swept.outcomes:
        if isinstance(outcome, SweepDocument):
            out.print()
            show.print_sweep(outcome, out)
        elif isinstance(outcome, InterferenceDocument):
            out.print()
            show_interference.print_interference(outcome, out)
    for path in swept.written:
        click.echo(f"written: {path}")


def _print_json(swept: Swept) -> None:
    """One target: its document (or the event that says why there is none); several: a list."""
    found: list[Any] = [json.loads(to_json(outcome)) for outcome in swept.outcomes]
    plain = found[0] if len(found) == 1 else found
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(plain), indent=2) + b"\n")
    sys.stdout.buffer.flush()


def _complain(event: Event) -> None:
    what = "refused" if event.kind == "sweep_refused" else "failed"
    if event.reason is Reason.STOPPED:
        what = "ended before its first cell"
    name = "interference" if event.plan == "interference" else "sweep"
    click.echo(printable(f"mpswatch: {name} {what} ({event.reason}): {event.message}"), err=True)
    remedy = event.details.get("remedy")
    if remedy:
        click.echo(printable(f"  {remedy}"), err=True)
