"""The command group: a command's module is imported when the command runs, and not before."""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
import traceback
from typing import TYPE_CHECKING, NoReturn

import click

import mpswatch
from mpswatch.daemon.exit import Exit
from mpswatch.documents import Reason
from mpswatch.errors import MpswatchError
from mpswatch.names import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "run": "Watch: poll, sweep on schedule, export metrics, keep the archive.",
    "sweep": "Measure one sweep now, beside a running daemon or without one.",
    "interference": "Measure what pairs of capped clients cost each other.",
    "poll": "Look once: who is managed, who else is on the GPU.",
    "doctor": "Say whether sweeps will run here, and what this host lacks.",
    "demo": "Run the daemon on an embedded rehearsal stack: no GPU needed.",
    "archive": "List, show and validate archived runs.",
    "history": "Show each cap over time, and how runs stand against earlier ones.",
    "compare": "Say what changed between two runs.",
    "report": "Write a period as one HTML file, for an incident or a capacity plan.",
    "schema": "Print the JSON Schema of a document: sweep, poll, event or interference.",
    "check-config": "Check a configuration file and name every fault.",
    "healthcheck": "Ask a running daemon whether it is healthy (for container images).",
    "pause": "Hold scheduled sweeps until resume; survives a restart.",
    "resume": "Let scheduled sweeps run again.",
    "completion": "Print the completion script for bash or zsh.",
}

EPILOG = "Exit codes: " + "; ".join(f"{code.value} {code.name.lower().replace('_', ' ')}" for code in Exit)


class LazyGroup(click.Group):
    """Knows its commands by name and one line each; each lies in `mpswatch.cli.<name>_command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"mpswatch.cli.{cmd_name.replace('-', '_')}_command")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EPILOG,
)
@click.version_option(mpswatch.__version__, prog_name="mpswatch", message="%(prog)s %(version)s")
def mpswatch_command() -> None:
    """Watches a GPU shared through NVIDIA MPS: what each cap gives, who is managed, who else is on the GPU."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and leave with one of `Exit`'s codes."""
    _mend_streams()
    code = _run(arguments)
    try:
        sys.stdout.flush()
    except OSError as error:
        code = _unwritten(error)
    sys.exit(code)


def _run(arguments: Sequence[str] | None) -> int:
    stdout = sys.stdout
    try:
        code = mpswatch_command.main(
            args=list(arguments) if arguments is not None else None, prog_name="mpswatch", standalone_mode=False
        )
    except click.exceptions.Exit as left:
        code = left.exit_code
    except click.ClickException as error:
        error.show()
        code = Exit.USAGE
    except SystemExit:
        if sys.stdout is stdout:
            raise
        # click wraps the stream and leaves with 1 where the reader of our output has left
        return _unwritten(BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)))
    except click.Abort:
        code = Exit.LEFT_AT_ONCE
    except KeyboardInterrupt:
        code = Exit.LEFT_AT_ONCE
    except MpswatchError as error:
        code = complain(error)
    except Exception as error:  # noqa: BLE001 - a fault of our own: said in full, with a code of its own
        if isinstance(error, OSError) and error.errno in {errno.EPIPE, errno.ENOSPC}:
            return _unwritten(error)
        traceback.print_exc()
        code = Exit.INTERNAL
    return code if isinstance(code, int) else Exit.OK


def _mend_streams() -> None:
    """Open what the caller closed (`>&-`): else the next file or socket becomes descriptor 1, and is written into.

    A mark stands for what the locale cannot encode: a name or a bar is no reason to end.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))
        elif name == "stdout" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _unwritten(error: OSError) -> Exit:
    """Our output went nowhere: in order where the reader had enough (`| head`), said where it did not fit."""
    code = Exit.OK if error.errno == errno.EPIPE else Exit.FAILED
    if code is Exit.FAILED:
        click.echo(f"mpswatch: the output cannot be written: {error.strerror}", err=True)
    # the interpreter would complain once more while it flushes
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


_EXITS = {
    Reason.CONFIGURATION: Exit.USAGE,
    Reason.WEB_CONFIGURATION: Exit.USAGE,
    Reason.CAP_OUT_OF_RANGE: Exit.USAGE,
    Reason.ADDRESS_UNAVAILABLE: Exit.PORT,
    Reason.REHEARSAL_STACK: Exit.REHEARSAL,
}


def complain(error: MpswatchError) -> Exit:
    """One clear line, and the remedy where one is known; the exit code that goes with it."""
    for line in f"mpswatch: {error.detail}".split("\n"):  # a configuration's faults have one each
        click.echo(printable(line), err=True)
    if error.remedy:
        click.echo(printable(f"  {error.remedy}"), err=True)
    return _EXITS.get(error.reason, Exit.FAILED)
