"""`mpswatch compare RUN RUN`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from mpswatch.archive import Archive, ArchiveError, read_run
from mpswatch.cli.options import ARCHIVE, AS_JSON, Source, configured
from mpswatch.documents import Reason, SweepDocument


@click.command("compare")
@click.argument("first")
@click.argument("second")
@configured(ARCHIVE, AS_JSON)
def command(*, source: Source, first: str, second: str, as_json: bool) -> None:
    """Say what changed between two runs: files, or run ids (a beginning that only one run has is enough).

    Numbers of runs that differ in GPU, daemon, plan, size, dtype, iterations or client are shown side by side without
    a ratio, and what differs is named.
    """
    from mpswatch.history import compare  # noqa: PLC0415 - loads after the arguments are right

    archive = Archive(Path(source.load().archive.directory))
    runs = (_run(archive, first), _run(archive, second))
    found = compare(*runs)
    simulated = any(run.simulated for run in runs)
    if as_json:
        import msgspec  # noqa: PLC0415

        click.echo(json.dumps({"simulated": simulated, **_plain(msgspec.to_builtins(found))}, indent=2))
        return
    from mpswatch.cli.compare_show import print_comparison  # noqa: PLC0415 - rich is for those who draw

    print_comparison(found, first, second, simulated=simulated)


def _plain(found: list[object]) -> dict[str, object]:
    """The comparison with its names: named tuples turn into lists on their way to JSON."""
    from mpswatch.history import CapChange, Comparison, Difference  # noqa: PLC0415

    crossing, circumstances, caps = found
    keyed = dict(
        zip(
            Comparison._fields,
            (
                [dict(zip(Difference._fields, one, strict=True)) for one in _list(crossing)],
                [dict(zip(Difference._fields, one, strict=True)) for one in _list(circumstances)],
                [dict(zip(CapChange._fields, one, strict=True)) for one in _list(caps)],
            ),
            strict=True,
        )
    )
    return dict(keyed)


def _list(value: object) -> list[list[object]]:
    return value if isinstance(value, list) else list(value)  # type: ignore[call-overload]  # plain data


def _run(archive: Archive, text: str) -> SweepDocument:
    """The run that `text` names; an id's beginning that several runs have is refused."""
    if "/" in text or Path(text).is_file():
        return read_run(Path(text))
    from mpswatch.history import read_with_index  # noqa: PLC0415

    found = read_with_index(archive, lambda index: index.find(text))
    exact = [path for run_id, path in found if run_id == text]
    if len(exact) == 1 or len(found) == 1:
        return read_run((exact or [path for _, path in found])[0])
    if not found:
        raise ArchiveError(Reason.NEVER_SEEN, f"no run {text!r} in {archive.directory}", "see: mpswatch archive ls")
    names = ", ".join(run_id for run_id, _ in found)
    raise ArchiveError(Reason.IDENTITY_AMBIGUOUS, f"{text!r} begins several runs: {names}", "give more of the id")
