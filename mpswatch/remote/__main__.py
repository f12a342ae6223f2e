"""`python -m mpswatch.remote DIRECTORY URL`: copy what the target lacks, print one JSON report.

Exit codes: 0 everything is there; 1 something is missing (the report says how much, and the next call goes on);
2 the command line, the archive or the URL is wrong (one line on stderr).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from mpswatch.archive import Archive, ArchiveError
from mpswatch.remote.push import push


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    options = _parser().parse_args(arguments)
    os.environ.setdefault("AWS_MAX_ATTEMPTS", "1")  # the attempts are counted here, and a dead server found out soon
    try:
        from mpswatch.remote.target import Target, UnusableTarget, shown  # noqa: PLC0415 - fsspec is an extra
    except ImportError:
        sys.stderr.write("copying to a target needs fsspec: pip install 'mpswatch[remote]'\n")
        return 2
    try:
        target = Target(options.url)
        entries = [entry for entry in Archive(options.directory).entries() if _recent(entry.started, options.since)]
    except (UnusableTarget, ArchiveError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    report = push(entries, target, deadline=options.deadline)
    sys.stdout.write(json.dumps({"url": shown(options.url), **asdict(report)}) + "\n")
    return 1 if report.missing else 0


def _recent(started: datetime, since: datetime | None) -> bool:
    return since is None or started >= since


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mpswatch.remote", description="Copy the runs that a target lacks.")
    parser.add_argument("directory", type=Path, metavar="DIRECTORY", help="the archive")
    parser.add_argument("url", metavar="URL", help="any fsspec URL; credentials come from the environment")
    parser.add_argument("--deadline", type=float, default=300.0, metavar="SECONDS", help="start nothing after this")
    parser.add_argument(
        "--since", type=_moment, metavar="TIME", help="only runs started since (ISO 8601): what came before is there"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
