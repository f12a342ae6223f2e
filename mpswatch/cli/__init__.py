"""The command line: arguments, tables, progress, exit codes. The work itself is done in the rooms below."""

from __future__ import annotations

from mpswatch.cli.group import main

__all__ = ["main"]
