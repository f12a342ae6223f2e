"""A control daemon that is a real process at each question: `fake_control.py` under a pipe directory of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mpswatch import mps
from mpswatch.proc import Processes


class FakeDaemon:
    """The pipe directory of a control daemon that `fake_control.py` plays, with a /proc beside it."""

    def __init__(self, directory, tree):
        self.directory = directory
        source = (Path(__file__).parent / "fake_control.py").read_text().splitlines(keepends=True)
        program = directory.parent / "nvidia-cuda-mps-control"
        program.write_text("".join([f"#!{sys.executable} -SE\n", *source[1:]]))
        program.chmod(0o755)
        self.program = str(program)
        self.tree = tree
        directory.mkdir()
        self.play({})

    def play(self, *connections, mode="honest", **more):
        (self.directory / "fake.json").write_text(json.dumps({"mode": mode, "connections": connections, **more}))
        (self.directory / "asked.log").unlink(missing_ok=True)

    def asked(self):
        path = self.directory / "asked.log"
        return [json.loads(line)["asked"] for line in path.read_text().splitlines()] if path.exists() else []

    def environments(self):
        return [json.loads(line)["environment"] for line in (self.directory / "asked.log").read_text().splitlines()]

    def look(self, *, known=(), deadline=5.0, with_contexts=True, program=None, gpus=None, limits_due=False):
        look, source = mps.look(
            name="stack",
            pipe_directory=self.directory,
            known_servers=known,
            program=program or self.program,
            deadline=deadline,
            processes=Processes(self.tree.root),
            with_contexts=with_contexts,
            gpus=gpus,
            limits_due=limits_due,
        )
        assert not (self.directory / "violation").exists(), "something that is no query was sent"
        return look, source
