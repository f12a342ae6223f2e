"""A stack to attach to, and a launcher to talk to: real processes, started as the daemon starts them."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mpswatch.process.bundle import client_zipapp
from mpswatch.process.launch import Launched, launch

HERE = Path(__file__).parent


class Stack:
    """The small rehearsal server of this folder, and what it wrote down."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._program = subprocess.Popen([sys.executable, "-I", str(HERE / "rehearsal.py"), str(directory)])
        until = time.monotonic() + 10
        while not (directory / "rehearsal").exists():
            assert time.monotonic() < until, "the stack does not start"
            time.sleep(0.01)

    def receive_clients(self, mode: str) -> None:
        (self.directory / "mode").write_text(mode)

    def journal(self) -> list[dict[str, Any]]:
        path = self.directory / "journal.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def left(self, number: int, seconds: float = 10) -> list[dict[str, Any]]:
        """The `left` lines, once there are `number` of them."""
        until = time.monotonic() + seconds
        while len(lines := [line for line in self.journal() if line["what"] == "left"]) < number:
            assert time.monotonic() < until, f"{len(lines)} clients left, not {number}: {self.journal()}"
            time.sleep(0.01)
        return lines

    def noted(self, what: str, seconds: float = 10) -> None:
        """Wait until the journal has such a line."""
        until = time.monotonic() + seconds
        while not any(line["what"] == what for line in self.journal()):
            assert time.monotonic() < until, f"no {what}: {self.journal()}"
            time.sleep(0.01)

    def end(self) -> None:
        self._program.kill()
        self._program.wait()


class Conversation:
    """One launcher, spoken to line by line."""

    def __init__(self, launched: Launched) -> None:
        self.launched = launched
        self.pid = launched.pid
        self._got = b""

    def say(self, **message: Any) -> None:
        self.launched.send(json.dumps(message).encode() + b"\n")

    def cell(self, order: int = 1, **changes: Any) -> None:
        cell = {"order": order, "cap": "50", "size": 96, "iters": 12, "dtype": "fp16", "seed": 7, "deadline": 20.0}
        self.say(cell={**cell, "warm_up": 2, "samples": 3, **changes})

    def hear(self, seconds: float = 20) -> tuple[str, Any] | None:
        """The next line's word and body; None at end-of-file."""
        until = time.monotonic() + seconds
        while b"\n" not in self._got:
            ready, _, _ = select.select([self.launched.receive_fd], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"nothing heard for {seconds} s"
            chunk = os.read(self.launched.receive_fd, 65536)
            if not chunk:
                return None
            self._got += chunk
        line, _, self._got = self._got.partition(b"\n")
        assert len(line) < 4096
        ((word, body),) = json.loads(line).items()
        return word, body

    def expect(self, word: str, seconds: float = 20) -> Any:
        heard = self.hear(seconds)
        assert heard is not None, f"end-of-file in place of {word}"
        assert heard[0] == word, f"{heard} in place of {word}"
        return heard[1]

    def through(self, order: int = 1, **changes: Any) -> dict[str, Any]:
        """One whole cell; what each line said, by its word."""
        self.cell(order, **changes)
        said = {word: self.expect(word) for word in ("forked", "attached")}
        self.say(go=True)
        said["result"] = self.expect("result")
        self.say(bye=True)
        said["gone"] = self.expect("gone")
        return said

    def ended(self, seconds: float = 20) -> int:
        until = time.monotonic() + seconds
        while (code := self.launched.exited()) is None:
            assert time.monotonic() < until, "the launcher lives on"
            time.sleep(0.005)
        return code


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    directory = tmp_path / "pipe"
    directory.mkdir()
    stack = Stack(directory)
    yield stack
    stack.end()


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return client_zipapp(tmp_path_factory.mktemp("client"))


@pytest.fixture
def start(stack: Stack, client: Path, tmp_path: Path) -> Iterator[Any]:
    """start(*more arguments) -> Conversation that has said `ready` (unless ready=False)."""
    started: list[Conversation] = []
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def start(*arguments: str, ready: bool = True, environment: dict[str, str] | None = None) -> Conversation:
        argv = [sys.executable, "-I", "-B", str(client), "--backend", "numpy", "--pipe-directory", str(stack.directory)]
        launched = launch([*argv, *arguments], env=environment or {"LC_CTYPE": "C.UTF-8"}, log_fd=log)
        conversation = Conversation(launched)
        started.append(conversation)
        if ready:
            conversation.said_ready = conversation.expect("ready")
        return conversation

    yield start
    stack.receive_clients("normal")  # whoever hangs in the "driver" comes out of it
    for conversation in started:
        conversation.launched.close()
        conversation.ended()
    os.close(log)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"
