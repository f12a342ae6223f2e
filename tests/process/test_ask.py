"""Asking real programs: what they print comes back, and nothing they do holds us past the deadline."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from pathlib import Path

import pytest

from mpswatch.documents import Reason
from mpswatch.process.ask import ProgramLate, ProgramMissing, ProgramTooMuch, ProgramUnusable, ask


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_the_answer_is_what_the_program_printed_and_how_it_ended() -> None:
    answer = ask(
        python("import sys; sys.stdout.write(sys.stdin.read().upper()); print('no', file=sys.stderr); sys.exit(3)"),
        deadline=10,
        stdin=b"get_server_list\n",
    )
    assert (answer.stdout, answer.stderr, answer.returncode) == (b"GET_SERVER_LIST\n", b"no\n", 3)
    assert 0 < answer.seconds < 10


def test_a_program_that_ignores_its_input_still_answers() -> None:
    assert ask(["true"], deadline=10, stdin=b"x" * 500_000).returncode == 0


def test_much_input_and_much_output_do_not_block_each_other() -> None:
    data = b"y" * 700_000
    assert ask(["cat"], deadline=20, stdin=data).stdout == data


def test_a_missing_program_is_named() -> None:
    with pytest.raises(ProgramMissing) as raised:
        ask(["no-such-program-here"], deadline=1)
    assert raised.value.reason is Reason.SOURCE_FAILED
    assert "no-such-program-here" in raised.value.detail


def test_a_program_that_cannot_be_started_is_unusable(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("not a program")
    with pytest.raises(ProgramUnusable):
        ask([str(plain)], deadline=1)


def test_a_late_program_is_ended_with_everything_it_started(tmp_path: Path) -> None:
    note = tmp_path / "grandchild"
    code = (
        "import os, time, pathlib\n"
        f"pid = os.fork()\nif pid: pathlib.Path({str(note)!r}).write_text(str(pid))\n"
        "time.sleep(60)"
    )
    began = time.monotonic()
    with pytest.raises(ProgramLate) as raised:
        ask(python(code), deadline=0.7)
    assert raised.value.reason is Reason.SOURCE_STUCK
    assert 0.6 < raised.value.seconds < 5
    assert time.monotonic() - began < 5
    grandchild = int(note.read_text())
    for _ in range(100):
        status = Path(f"/proc/{grandchild}/stat")
        if not status.exists() or status.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return
        time.sleep(0.02)
    pytest.fail("the grandchild lives on")


def test_a_program_that_closes_its_output_and_stays_is_late_too() -> None:
    with pytest.raises(ProgramLate):
        ask(python("import os, time; os.close(1); os.close(2); time.sleep(60)"), deadline=0.5)


def test_a_flood_is_cut_off() -> None:
    with pytest.raises(ProgramTooMuch):
        ask(["yes"], deadline=10, limit=100_000)


def test_only_the_given_environment_is_seen() -> None:
    answer = ask(["/usr/bin/env"], deadline=10, env={"CUDA_MPS_PIPE_DIRECTORY": "/somewhere"})
    assert answer.stdout == b"CUDA_MPS_PIPE_DIRECTORY=/somewhere\n"


def test_no_descriptor_and_no_thread_is_left_behind() -> None:
    before, threads = open_descriptors(), threading.active_count()
    for argv in (["true"], ["no-such-program-here"], ["yes"], ["sleep", "60"]):
        with contextlib.suppress(ProgramMissing, ProgramTooMuch, ProgramLate):
            ask(argv, deadline=0.1, limit=1000)
    assert open_descriptors() == before
    assert threading.active_count() == threads


def test_many_threads_may_ask_at_once() -> None:
    answers: list[bytes] = []
    threads = [
        threading.Thread(target=lambda n=n: answers.append(ask(["echo", str(n)], deadline=20).stdout)) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [f"{n}\n".encode() for n in range(8)]
