"""A launcher that keeps to the protocol but for one fault, told by the variable FAKE (`where:what`, several by commas).

Its children are real processes, which "attach" by leaving a file with their pid in DIR/clients and take it away when
they leave; that folder is what the desk (conftest.py) reads as the control daemon's list.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path

DIRECTORY = Path(sys.argv[sys.argv.index("--pipe-directory") + 1])
FAULTS = set(filter(None, os.environ.get("FAKE", "").split(",")))
GPU = os.environ["CUDA_VISIBLE_DEVICES"]


def say(**message: object) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def note(what: str) -> None:
    with (DIRECTORY / "notes").open("a") as notes:
        notes.write(f"{what}\n")


def fault(where: str) -> None:
    """Whatever FAKE says is to go wrong here; returns where nothing is."""
    if f"{where}:dies" in FAULTS:
        os.write(2, b"Segmentation \x1b[31mfault\n")
        os._exit(3)
    if f"{where}:killed" in FAULTS:
        os.kill(os.getpid(), signal.SIGKILL)
    if f"{where}:nonsense" in FAULTS:
        os.write(1, b"Traceback (most recent call last):\n")
    if f"{where}:long" in FAULTS:
        os.write(1, b'{"result": "' + b"x" * 5000 + b'"}\n')
    if f"{where}:cut" in FAULTS:
        os.write(1, b'{"result": {"order": 1, "cap": "100", "seconds": 0.1')
        os._exit(0)
    if f"{where}:two" in FAULTS:
        os.write(1, b'{"go": {}, "ready": {}}\n')
    if f"{where}:hangs" in FAULTS:
        time.sleep(3600)
    if f"{where}:slow" in FAULTS:
        time.sleep(1.4)


def refuse(where: str, phase: str, **place: object) -> bool:
    for told in FAULTS:
        if told.startswith(f"{where}:failed="):
            say(failed={"phase": phase, "reason": told.partition("=")[2], "detail": "so \x1b[2Jit goes", **place})
            return True
    return False


def listed(pid: int, folder: str = "clients") -> Path:
    return DIRECTORY / folder / str(pid)


def hear(fd: int) -> str:
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(fd, 1)
        if not byte:
            return "eof"
        line += byte
    return line.decode().strip()


def companion() -> int:
    """One more process of this session on the list, which leaves with the child."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    listed(pid).touch()
    return pid


def child(order: int, cap: str, lifeline: int) -> None:
    place = {"order": order, "cap": cap}
    fault("child")
    if refuse("child", "context", **place):
        os._exit(70 if "child:broken" in FAULTS else 1)
    me = os.getpid()
    joined = listed(me, "others" if "join:other_server" in FAULTS else "clients")
    extra = None
    if "join:never" not in FAULTS and "join:other_pid" not in FAULTS:
        joined.touch()
    if "join:twice" in FAULTS or "join:other_pid" in FAULTS:
        extra = companion()
    device = "GPU-ffffffff" if "attached:device" in FAULTS else GPU
    say(
        attached={
            **place,
            "order": order + 1 if "attached:order" in FAULTS else order,
            "pid": 1 if "attached:pid" in FAULTS else me,
            "sm_count": 8 if "attached:flat" in FAULTS else max(8, int(132 * float(cap) / 100) // 2 * 2),
            "device_uuid": device,
            "device_name": "fake",
            "timings": {"fork": 0.001, "context": 0.002, "allocate": 0.003},
            "environment": {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": cap},
        }
    )
    try:
        fault("attached")
        word = hear(lifeline)
        note(f"{cap} heard {word}")
        if word != "go":
            say(failed={**place, "phase": "attached", "reason": "stopped", "detail": f"heard {word}"})
            return
        if refuse("go", "measure", **place):
            return
        fault("go")
        time.sleep(0.01)
        if "result:leaves_list" in FAULTS:
            joined.unlink()
        seconds = {"result:lie": 60.0, "result:negative": -1.0, "result:zero": 0.0}
        say(
            result={
                **place,
                "seconds": next((value for told, value in seconds.items() if told in FAULTS), 0.008),
                "samples": [0.0001, 0.0002],
                "clock": "cuda_event",
                "dtype": "float16",
                "timings": {"warm_up": 0.002, "measure": 0.008, "busy": 0.01},
                "pieces": {
                    "count": 4,
                    "in_flight_most": 2,
                    "longest_unwatched": 0.004,
                    "gap_ratio": 0.001,
                    "host_bound": False,
                },
                "warm_up_iterations": 3,
                "input_values": "normal(0, 1)",
            }
        )
        fault("result")
        note(f"{cap} heard {hear(lifeline)}")
    finally:
        joined.unlink(missing_ok=True)
        if extra is not None:
            listed(extra).unlink()
    os._exit(4 if "bye:status" in FAULTS else 0)


def measure(order: int, cap: str) -> None:
    reading, writing = os.pipe()
    fault("cell")
    if refuse("cell", "launcher", order=order, cap=cap):
        return
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        try:
            child(order, cap, reading)
        finally:
            os._exit(0)
    os.close(reading)
    say(forked={"order": order, "cap": cap, "pid": pid})
    fault("forked")
    buffer, open_ended = b"", True
    os.set_blocking(0, False)
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        try:
            chunk = os.read(0, 4096) if open_ended else None
        except BlockingIOError:
            chunk = None
        if chunk == b"":
            os.close(writing)
            open_ended = False
        elif chunk:
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                ((word, _),) = json.loads(line).items()
                os.write(writing, word.encode() + b"\n")
        time.sleep(0.002)
    os.set_blocking(0, True)
    fault("gone")
    signalled = os.WIFSIGNALED(status)
    say(
        gone={
            "order": order,
            "cap": cap,
            "pid": pid,
            "status": status,
            "exit": None if signalled else os.WEXITSTATUS(status),
            "signal": os.WTERMSIG(status) if signalled else None,
        }
    )
    if not open_ended:
        os._exit(0)


def main() -> None:
    note(f"launcher {os.getpid()}")
    lock = os.open(DIRECTORY, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fault("launcher")
    if refuse("launcher", "launcher"):
        return
    library = {"launcher:numpy": {"numpy": "2"}, "launcher:neither": {}}
    say(
        ready={
            "pid": os.getpid(),
            "python": "3.11",
            "import_seconds": 0.1,
            "lock": "free" if "launcher:unlocked" in FAULTS else "held",
            **next((said for told, said in library.items() if told in FAULTS), {"torch": "2.9"}),
        }
    )
    while True:
        line = hear(0)
        if line == "eof":
            return
        ((word, content),) = json.loads(line).items()
        if word == "end":
            return
        measure(content["order"], content["cap"])


main()
