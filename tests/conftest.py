"""What several rooms' tests use, and real parts.

A test marked `part("promtool")` runs where that program is, and is named last where it is not.
With MPSWATCH_REQUIRE_PARTS=1 (CI) a missing part is a failure instead.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mpswatch.latest import Latest, Settings
from mpswatch.rehearsal import Stack

TESTS = Path(__file__).parent
RECORDINGS = TESTS / "recordings"

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
def shared_code() -> Callable[[str], ModuleType]:
    """Test code that rooms share, by its path in tests/ (which is no package); each file is loaded once."""
    loaded: dict[str, ModuleType] = {}

    def load(path: str) -> ModuleType:
        if path not in loaded:
            name = f"shared_{Path(path).with_suffix('').as_posix().replace('/', '_')}"
            spec = importlib.util.spec_from_file_location(name, TESTS / path)
            assert spec is not None
            assert spec.loader is not None
            loaded[path] = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(loaded[path])
        return loaded[path]

    return load


@pytest.fixture(scope="session")
def facts(shared_code: Callable[[str], ModuleType]) -> ModuleType:
    """Ready-made documents (tests/latest/facts.py)."""
    return shared_code("latest/facts.py")


class Clock:
    """A monotonic clock that moves when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def latest(clock: Clock, facts: ModuleType) -> Latest:
    """A view of one daemon: polls every 15 s, sweeps every hour."""
    return Latest(
        Settings(daemons={facts.DAEMON: facts.PIPE}, poll_interval=15, sweep_interval=3600),
        host=facts.HOST,
        simulated=False,
        started_at=facts.NOON,
        version="0.1.0",
        monotonic=clock,
    )


@pytest.fixture(scope="session")
def make_tree(shared_code: Callable[[str], ModuleType]) -> Callable[..., Any]:
    """Make a /proc of made-up processes in a folder (tests/proc/tree.py)."""
    made: Callable[..., Any] = shared_code("proc/tree.py").ProcTree
    return made


@pytest.fixture
def tree(make_tree: Callable[..., Any], tmp_path: Path) -> Any:
    return make_tree(tmp_path / "proc")


@pytest.fixture(scope="session")
def recordings() -> Path:
    """What a real H200 (driver 580.159.04) printed on 2026-11-30."""
    return RECORDINGS / "h200-580-20261130"


@pytest.fixture(scope="session")
def documented() -> Path:
    """What NVIDIA's documentation of MPS protocol 3 shows that the control program prints; no recording."""
    return RECORDINGS / "mps-v3-documentation"


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
