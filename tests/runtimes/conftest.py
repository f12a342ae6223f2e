"""The rehearsed stack of tests/sweep, swept by a client that runs elsewhere."""

from __future__ import annotations

import importlib.util
import os
import stat
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from mpswatch.process.bundle import client_zipapp
from mpswatch.rehearsal import Stack
from mpswatch.sweep.run import run_sweep

HERE = Path(__file__).parent

_spec = importlib.util.spec_from_file_location("runtimes_sweep_conftest", HERE.parent / "sweep/conftest.py")
_sweep = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _sweep  # dataclasses look their module up
_spec.loader.exec_module(_sweep)


class Room(_sweep.Room):
    """As there, with a runtime of the test's choice."""

    def sweep_with(self, runtime, watch=None, **plan):
        told = self._told(watch)
        told["ports"] = replace(told["ports"], runtime=runtime)
        return run_sweep(plan=self._plan(**plan), **told)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    return client_zipapp(tmp_path_factory.mktemp("client"))


@pytest.fixture
def room(client):
    with tempfile.TemporaryDirectory(prefix="mw-") as folder:
        Path(folder).chmod(0o755)
        with Stack(f"{folder}/stack") as stack:
            made = Room(stack=stack, client=client)
            made.services += [stack.add_service("ranker"), stack.add_service("embedder")]
            yield made


@pytest.fixture
def docker(tmp_path):
    """The strict stand-in, as a program."""
    program = tmp_path / "docker"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "stand_in.py"} "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a pid namespace takes root")
