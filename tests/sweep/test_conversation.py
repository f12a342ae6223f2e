"""Any bytes from the launcher come to a document or a refusal, and to no number that was not in them."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mpswatch.documents import Reason, SweepDocument, from_json, to_json
from mpswatch.proc import ProcessFacts
from mpswatch.process.launch import Launched
from mpswatch.sweep.conversation import Babble, Conversation, Ended, Late, Stopped
from mpswatch.sweep.log import LauncherLog
from mpswatch.sweep.messages import NonsenseError, Ready, Result, read
from mpswatch.sweep.permit import Refusal
from mpswatch.sweep.stop import Stop

ME = os.getpid()
PLACE = {"order": 1, "cap": "100"}
WELL = [
    {"ready": {"pid": ME, "python": "3.11", "import_seconds": 0.1, "lock": "held", "torch": "2.9"}},
    {"forked": {**PLACE, "pid": ME}},
    {"attached": {**PLACE, "pid": ME, "sm_count": 132, "timings": {"context": 0.1}, "environment": {"A": "1"}}},
    {
        "result": {
            **PLACE,
            "seconds": 0.0009,
            "samples": [0.0001, 0.0003],
            "clock": "cuda_event",
            "dtype": "float16",
            "timings": {"measure": 0.0009},
        }
    },
    {"gone": {**PLACE, "pid": ME, "status": 0, "exit": 0, "signal": None}},
]


@contextlib.contextmanager
def said(*chunks: bytes, open_ended: bool = False) -> Iterator[Launched]:
    """A launcher that has said this already, and listens to nobody. There is no process: only what it wrote."""
    theirs_in, ours_out = os.pipe2(os.O_NONBLOCK)
    ours_in, theirs_out = os.pipe2(os.O_NONBLOCK)
    for chunk in chunks:
        os.write(theirs_out, chunk)
    if not open_ended:
        os.close(theirs_out)
    launched = Launched(ME, ours_out, ours_in)
    try:
        yield launched
    finally:
        launched.close()
        os.close(theirs_in)
        if open_ended:
            os.close(theirs_out)


class Recorded:
    """A runtime whose launcher has said everything in advance; this process plays its child."""

    name = "recorded"

    def __init__(self, output: bytes) -> None:
        self.output = output

    def describe(self) -> str:
        return "recorded"

    def start(self, **_where: object) -> Launched:
        self._open = said(self.output)
        self.launched = self._open.__enter__()
        return self.launched

    def close(self) -> None:
        self._open.__exit__(None, None, None)

    def is_ours(self, _launched: Launched, facts: ProcessFacts) -> bool:
        return facts.pid == ME

    def launcher_pid(self, _launched: Launched) -> int | None:
        return ME


def lines(messages: list[Any]) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def hear_all(output: bytes) -> list[object]:
    with said(output) as launched:
        conversation = Conversation(launched, Stop())
        heard: list[object] = []
        while not heard or not isinstance(heard[-1], Ended | Babble):
            heard.append(conversation.hear(until=time.monotonic() + 5))
        return heard


def test_messages_are_heard_in_their_order():
    assert [type(heard).__name__ for heard in hear_all(lines(WELL))] == [
        "Ready",
        "Forked",
        "Attached",
        "Result",
        "Gone",
        "Ended",
    ]


def test_what_the_launcher_says_of_itself_is_kept_as_text_and_bounded():
    told = {**WELL[0]["ready"], "cuda": 13.0, "name\x1b": "x" * 500, "nested": {"a": 1}}
    ready = read(json.dumps({"ready": told}).encode())
    assert isinstance(ready, Ready)
    assert ready.facts["cuda"] == "13.0"
    assert ready.facts["name\\x1b"] == "x" * 199 + "…"
    assert "nested" not in ready.facts


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"{}",
        b"[1]",
        b"\xff\xfe",
        b'{"go": {}}',
        b'{"ready": {}, "gone": {}}',
        b'{"gone": []}',
        b'{"result": {"order": 1, "cap": "100", "seconds": NaN, "clock": "c", "dtype": "d"}}',
        b'{"result": {"order": 1, "cap": "100", "seconds": 1e999, "clock": "c", "dtype": "d"}}',
        b'{"result": {"order": 1, "cap": "100", "seconds": 0, "clock": "c", "dtype": "d"}}',
        b'{"result": {"order": 1, "cap": "100", "seconds": "1", "clock": "c", "dtype": "d"}}',
        b'{"result": {"order": 1, "cap": 100, "seconds": 1, "clock": "c", "dtype": "d"}}',
        b'{"attached": {"order": 1, "cap": "100", "pid": 1, "sm_count": 0}}',
        b'{"attached": {"order": 1, "cap": "100", "pid": 1, "sm_count": 1.5}}',
        b"[" * 3000,
    ],
)
def test_a_line_that_is_no_message_is_nonsense(line):
    with pytest.raises(NonsenseError):
        read(line)
    assert isinstance(hear_all(line + b"\n")[-1], Babble)


def test_the_first_nonsense_is_the_last_thing_heard():
    (heard,) = hear_all(b"oops\n" + lines(WELL))
    assert isinstance(heard, Babble)
    assert "oops" in heard.detail


def test_a_line_cut_short_is_no_message():
    cut = lines(WELL[3:4])[:-20]
    assert hear_all(cut) == [Ended(status=0)]


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_that_does_not_end_is_given_up(end):
    (heard,) = hear_all(b'{"x": "' + b"y" * 5000 + end)
    assert heard == Babble(detail="a line longer than 4096 bytes")


def test_silence_ends_at_the_deadline_and_by_the_wish_to_stop():
    stop = Stop()
    with said(open_ended=True) as launched:
        conversation = Conversation(launched, stop)
        began = time.monotonic()
        assert conversation.hear(until=began + 0.05) == Late()
        assert 0.04 < time.monotonic() - began < 1
        stop.request()
        assert conversation.hear(until=began + 60) == Stopped()
        assert conversation.hear(until=time.monotonic() + 0.02, heed_stop=False) == Late()


def numbers(value: Any) -> Iterator[float]:
    if isinstance(value, bool):
        return
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from numbers(inner)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def content_of(message: Any) -> dict[str, Any]:
    content = next(iter(message.values()), None) if isinstance(message, dict) else None
    return content if isinstance(content, dict) else {}


@st.composite
def conversations(draw: st.DrawFn) -> list[Any]:
    """A conversation that goes well, with anything changed, lost, doubled or put in."""
    told = json.loads(json.dumps(WELL))
    for _ in range(draw(st.integers(0, 3))):
        if not told:
            break
        place = draw(st.integers(0, len(told) - 1))
        match draw(st.sampled_from(["change", "lose", "double", "put", "swap", "unkey"])):
            case "change":
                content = content_of(told[place])
                if content:
                    content[draw(st.sampled_from(sorted(content)))] = draw(anything)
            case "unkey":
                content = content_of(told[place])
                if content:
                    del content[draw(st.sampled_from(sorted(content)))]
            case "lose":
                del told[place]
            case "double":
                told.insert(place, told[place])
            case "put":
                told.insert(place, draw(anything))
            case "swap":
                other = draw(st.integers(0, len(told) - 1))
                told[place], told[other] = told[other], told[place]
    return told


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(told=conversations())
def test_whatever_the_launcher_says_no_number_is_made_up(desk, told):
    outcome = sweep(desk, told)
    if isinstance(outcome, Refusal):
        assert outcome.reason in Reason
        return
    assert from_json(to_json(outcome), SweepDocument) == outcome
    heard = set(numbers(told))
    (cell,) = outcome.cells
    shown = [cell.seconds, cell.sm_count, cell.client_reported_pid, *cell.samples]
    assert {number for number in shown if number is not None} <= heard
    if cell.tflops is not None:
        assert math.isfinite(cell.tflops)
        assert cell.self_was_managed is True
        assert cell.seconds is not None
        assert cell.seconds > 0


def test_a_conversation_that_goes_well_ends_in_a_number(desk):
    outcome = sweep(desk, WELL)
    assert isinstance(outcome, SweepDocument)
    assert outcome.complete_sweep, outcome.partial_run_note


def sweep(desk: Any, told: list[Any]) -> SweepDocument | Refusal:
    runtime, look = Recorded(lines(told)), desk.look_at_daemon
    desk.look_at_daemon, desk.looks = join_after(desk, look), 0
    short = {"drain_deadline": 0.02, "join_deadline": 0.02, "launch_deadline": 0.1, "cell_deadline": 0.1}
    try:
        return desk.sweep_with(runtime, caps=("100",), **short)
    finally:
        runtime.close()
        desk.look_at_daemon = look


def join_after(desk: Any, look: Any) -> Any:
    """This process joins the list with the second look: it was not there at the preflight."""

    def looking() -> Any:
        mine = desk.directory / "clients" / str(ME)
        if desk.looks >= 2:
            mine.touch()
        else:
            mine.unlink(missing_ok=True)
        return look()

    return looking


def test_the_log_keeps_the_last_words_and_no_more_than_its_bound():
    with LauncherLog() as log:
        assert log.last() == ""
        os.write(log.fd, b"one\n\ntwo\nthr\x1bee \xff\n")
        assert log.last(2) == "two | thr\\x1bee \ufffd"
        for _ in range(3):
            os.write(log.fd, b"x" * 65535 + b"\n")
        os.write(log.fd, b"y" * 65536)  # what fits is taken
        with pytest.raises(PermissionError):
            os.write(log.fd, b"z")
        assert os.fstat(log.fd).st_size == 1 << 18
        log.rewind()
        os.write(log.fd, b"anew\n")
        assert log.last() == "anew"


def test_a_result_is_read_with_its_bounds():
    assert isinstance(read(json.dumps(WELL[3]).encode()), Result)
