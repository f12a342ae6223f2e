from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from mpswatch.documents import Conditions, GpuLook

HERE = Path(__file__).parent


def _library(folder, *options, source=HERE / "stub_nvml.c"):
    folder.mkdir()
    output = folder / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", *options, "-o", output, source], check=True)
    return folder


@pytest.fixture(scope="session")
def libraries(tmp_path_factory):
    """The stub in today's form and as an older one, and a library that is another thing altogether."""
    folder = tmp_path_factory.mktemp("libraries")
    (folder / "nothing.c").write_text("int something_else(void) { return 0; }\n")
    return {
        "today": _library(folder / "today"),
        "old": _library(folder / "old", "-DOLD"),
        "other": _library(folder / "other", source=folder / "nothing.c"),
        "none": folder,
    }


class Asker:
    """NVML behind a scenario that can be changed at any moment."""

    def __init__(self, library, folder, proc):
        self.scenario = folder / "scenario"
        self.scenario.write_text("")
        self.proc = proc
        self.process = subprocess.Popen(
            [sys.executable, HERE / "asker.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "LD_LIBRARY_PATH": str(library), "STUB_NVML": str(self.scenario)},
        )

    def _ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def play(self, *lines):
        self.scenario.write_bytes(b"".join(line.encode("latin-1") + b"\n" for line in lines))

    def new(self, *lines, proc=None, reopen_seconds=60.0):
        self.play(*lines)
        self._ask(do="new", proc=str(proc or self.proc), reopen_seconds=reopen_seconds)
        return self

    def answer(self):
        return self._ask(do="look")

    def look(self):
        answer = self.answer()
        looks = msgspec.convert(answer["looks"], tuple[GpuLook, ...])
        assert_no_sentinel(answer)
        return looks

    def conditions(self, uuid):
        answer = self._ask(do="conditions", uuid=uuid)
        return answer if "error" in answer else msgspec.convert(answer["conditions"], Conditions)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def assert_no_sentinel(value):
    """No number of NVML's for "not available" anywhere in a document."""
    if isinstance(value, dict):
        for part in value.values():
            assert_no_sentinel(part)
    elif isinstance(value, list):
        for part in value:
            assert_no_sentinel(part)
    elif isinstance(value, (int, float)):
        assert value not in {2**32 - 1, 2**64 - 1, (2**32 - 1) / 1000}


@pytest.fixture(scope="session")
def make_asker(libraries, tmp_path_factory, make_tree):
    made = {}

    def make(name):
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            made[name] = Asker(libraries[name], folder, make_tree(folder / "proc").root)
        return made[name]

    yield make
    for asker in made.values():
        asker.close()


@pytest.fixture
def nvml(make_asker):
    return make_asker("today")
