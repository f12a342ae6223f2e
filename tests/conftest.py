"""Real parts: a test marked `part("promtool")` runs where that program is, and is named last where it is not.

With MPSWATCH_REQUIRE_PARTS=1 (CI) a missing part is a failure instead.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpswatch.rehearsal import Stack

RECORDINGS = Path(__file__).parent / "recordings"

_left_out: dict[str, list[str]] = {}


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("part"):
        for program in mark.args:
            if shutil.which(program) is None:
                if os.environ.get("MPSWATCH_REQUIRE_PARTS") == "1":
                    pytest.fail(
                        f"the real part {program!r} is not on PATH, and MPSWATCH_REQUIRE_PARTS=1", pytrace=False
                    )
                _left_out.setdefault(program, []).append(item.nodeid)
                pytest.skip(f"{program} is not on PATH")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _left_out:
        terminalreporter.section("left out because a real part is missing")
        for program, tests in sorted(_left_out.items()):
            terminalreporter.write_line(f"{program}: {', '.join(sorted(tests))}")


@pytest.fixture(scope="session")
def recordings() -> Path:
    """What a real H200 (driver 580.159.04) printed on 2026-11-30."""
    return RECORDINGS / "h200-580-20261130"


@pytest.fixture
def stack_directory() -> Iterator[Path]:
    """Room for a rehearsal: a short path (a socket's may have 107 bytes), open to other users' clients."""
    with tempfile.TemporaryDirectory(prefix="mpsw-", ignore_cleanup_errors=True) as directory:
        Path(directory).chmod(0o755)
        yield Path(directory) / "stack"


@pytest.fixture
def stack(stack_directory: Path) -> Iterator[Stack]:
    """A running rehearsal stack: a control daemon, and nobody on the GPU yet."""
    with Stack(stack_directory) as running:
        yield running
