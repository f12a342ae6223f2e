"""The first thing to run on a GPU: one private stack, one neighbour, five caps, and everything that was said.

    python3 tests/gpu/smoke.py [--output smoke.json] [--caps 100,75,50,25,10] [--size 4096] [--rehearsal]

The launcher is started as the daemon starts it (trampoline, exec, import). Prints each protocol line with its time,
checks membership, SM counts, signals and locks on the way, and goes on after a check that fails. Exit code 1 then.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import ways
from stacks import Stack, Talk, Unexpected, gone, missing, read, wait_until

from mpswatch.process.bundle import client_zipapp
from mpswatch.process.trampoline import NOT_IGNORED

SM_TOTAL = 132


class Checks:
    """What was found; nothing stops at the first finding."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.began = time.monotonic()
        self.record: dict[str, object] = {}

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:8.3f}  {text}", flush=True)

    def check(self, holds: bool, text: str) -> None:
        self.say(f"{'ok  ' if holds else 'FAIL'}  {text}")
        if not holds:
            self.failed.append(text)


def ignored_signals(pid: int) -> set[int]:
    for line in read(Path(f"/proc/{pid}/status")).splitlines():
        if line.startswith("SigIgn:"):
            mask = int(line.split()[1], 16)
            return {number for number in range(1, 65) if mask >> (number - 1) & 1}
    return set()


def ask_stack(stack: Stack, checks: Checks) -> tuple[list[int], list[int]]:
    """Servers and the clients of the first, by the private daemon's own word."""
    if stack.rehearsal:
        return [], []
    servers = [int(word) for word in stack.control("get_server_list").split()]
    clients = [int(word) for word in stack.control(f"get_client_list {servers[0]}").split()] if servers else []
    checks.say(f"servers {servers}, clients {clients}, neighbours {[one.pid for one in stack.neighbours]}")
    return servers, clients


def one_cell(stack: Stack, talk: Talk, checks: Checks, options: argparse.Namespace, *, order: int, cap: str) -> dict:
    began = time.monotonic()
    talk.say(cell={"order": order, "cap": cap, "size": options.size, "iters": options.iters, "dtype": "fp16",
                   "seed": 1234, "deadline": 30.0, "warm_up": 3, "samples": 20})  # fmt: skip
    talk.hear("forked")
    attached = talk.hear("attached")
    at_attached = time.monotonic()
    checks.say(json.dumps(attached))
    missed = set(range(1, 65)) - ignored_signals(talk.child) - {int(number) for number in NOT_IGNORED} - {32, 33}
    checks.check(
        not missed, f"cap {cap}: all signals ignored in the child, its driver's threads running (not: {missed})"
    )
    _, clients = ask_stack(stack, checks)
    if not stack.rehearsal:
        checks.check(talk.child in clients, f"cap {cap}: pid {talk.child} is listed before it works")
        most = max(SM_TOTAL * float(cap) / 100, 8)
        checks.check(
            SM_TOTAL * float(cap) / 100 - 8 < attached["sm_count"] <= most, f"cap {cap}: {attached['sm_count']} SMs"
        )
    talk.say(go=True)
    result = talk.hear("result")
    checks.say(json.dumps(result))
    ask_stack(stack, checks)
    talk.say(bye=True)
    gone_line = talk.hear("gone")
    checks.say(json.dumps(gone_line))
    checks.check(gone_line["exit"] == 0, f"cap {cap}: left with 0")
    if not stack.rehearsal:
        with contextlib.suppress(Unexpected):
            wait_until(lambda: talk.child not in ask_stack(stack, checks)[1], 5, "still listed")
    now = time.monotonic()
    tflops = 2 * options.size**3 * options.iters / result["seconds"] / 1e12
    unwatched = result["pieces"]["longest_unwatched"]
    kernel = result["seconds"] / options.iters
    checks.check(unwatched <= max(0.020, 1.5 * kernel), f"cap {cap}: longest unwatched {unwatched * 1000:.2f} ms")
    row = {"cap": cap, "sm_count": attached["sm_count"], "tflops": round(tflops, 1),
           "kernel_ms": round(kernel * 1000, 4), "wall": round(now - began, 3),
           "attached_to_gone": round(now - at_attached, 3),
           "device_uuid": attached["device_uuid"], **result["pieces"], **result["timings"]}  # fmt: skip
    checks.say("row " + json.dumps(row))
    return row


def host(checks: Checks) -> None:
    """What kind of machine this is, where the suite depends on it."""
    checks.say(
        f"python {sys.version.split()[0]}, kernel {platform.release()}, uid {os.getuid()}, cpus {os.cpu_count()}"
    )
    for path in ("/proc/locks", "/proc/self/status", "/proc/self/ns/pid"):
        checks.say(f"{path}: {'there' if Path(path).exists() else 'NOT there'}")
    for command in (
        ["nvidia-smi", "-L"],
        ["nvidia-smi", "--query-gpu=driver_version,compute_mode,memory.used", "--format=csv"],
    ):
        with contextlib.suppress(OSError):
            checks.say(subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout.strip())


def sweep(stack: Stack, checks: Checks, options: argparse.Namespace, folder: Path) -> None:
    client = client_zipapp(folder)
    checks.say(f"neighbours before: {stack.beats(1.0)}")
    servers, _ = ask_stack(stack, checks)
    began = time.monotonic()
    talk = stack.cold_launcher(client)
    ready = talk.hear("ready", seconds=120)
    checks.say(json.dumps(ready))
    checks.check(ready["threads"] == 1, f"one thread after the import (there are {ready['threads']})")
    checks.check(ready["session"] == talk.pid == ready["pid"], "the launcher leads its session")
    inode = f":{stack.pipe_directory.stat().st_ino} "
    holders = [line.split()[4] for line in read(Path("/proc/locks")).splitlines() if inode in line]
    checks.check(holders == [str(talk.pid)], f"/proc/locks names the launcher for the pipe directory ({holders})")
    second = stack.cold_launcher(client)
    failed = second.hear("failed")
    checks.check(failed["reason"] == "sweep_running", "a second launcher is told that a sweep is running")
    second.launched.close()
    ready_after = time.monotonic() - began
    rows = [
        one_cell(stack, talk, checks, options, order=order, cap=cap)
        for order, cap in enumerate(options.caps.split(","))
    ]
    wall = time.monotonic() - began
    checks.say(f"neighbours after: {stack.beats(1.0)}")
    talk.say(end=True)
    wait_until(lambda: talk.launched.exited() is not None, 30, "the launcher stays")
    checks.check(talk.launched.exited() == 0, "the launcher left with 0")
    talk.launched.close()
    checks.check(stack.dead() == [], "all neighbours live and do new work")
    if not stack.rehearsal:
        checks.check(ask_stack(stack, checks)[0] == servers, "it is the same server")
    checks.record |= {"ready": ready, "rows": rows, "sweep_wall": round(wall, 3), "ready_after": round(ready_after, 3)}
    checks.say(
        f"sweep of {len(rows)} caps: {wall:.2f} s, {ready_after:.2f} s to ready (import {ready['import_seconds']} s)"
    )
    checks.check(
        wall - ready["import_seconds"] < 5,
        "within the import plus a few seconds",
    )


def every_way_once(stack: Stack, checks: Checks) -> None:
    """One trial of each harmless way: shows that the survival suite itself works here."""
    import random

    rng = random.Random(7)
    for way in ways.WAYS:
        if way.harness != "mpswatch":
            continue
        talk = None
        try:
            talk = stack.warm_launcher(*way.arguments, log=way.log)
            way.trial(stack, talk, rng)
            outcome = "went as it should"
        except Exception as error:  # noqa: BLE001 -- found out here rather than in 300 trials
            outcome = f"{type(error).__name__}: {error}"
            if not isinstance(error, Unexpected):
                outcome += "\n" + traceback.format_exc()
        if talk is not None:
            talk.launched.close()
            with contextlib.suppress(Unexpected):
                wait_until(lambda talk=talk: gone(talk.pid) and (talk.child < 0 or gone(talk.child)), 70, "stays")
        died = stack.dead()
        checks.check(outcome == "went as it should" and not died, f"{way.name}: {outcome} {died or ''}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--caps", default="100,75,50,25,10")
    parser.add_argument("--size", type=int)
    parser.add_argument("--iters", type=int, default=80)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--rehearsal", action="store_true", help="without a GPU, against the tests' rehearsal server")
    parser.add_argument("--alone", action="store_true", help="no neighbour: the figures of an idle GPU")
    parser.add_argument("--no-ways", action="store_true", help="leave out the one trial of each way")
    options = parser.parse_args()
    options.size = options.size or (96 if options.rehearsal else 4096)
    checks = Checks()
    if not options.rehearsal and (lacks := missing()):
        print("the smoke test cannot run:\n  " + "\n  ".join(lacks), file=sys.stderr)
        return 2
    if not options.rehearsal:
        host(checks)
    with tempfile.TemporaryDirectory(prefix="mpswatch-smoke-") as folder:
        neighbours = () if options.alone else ("matmul",)
        stack = Stack(Path(folder), 0, rehearsal=options.rehearsal, neighbours=neighbours)
        try:
            with stack:
                checks.say("stack ready")
                sweep(stack, checks, options, Path(folder))
                if not options.no_ways:
                    every_way_once(stack, checks)
        except Exception:  # noqa: BLE001 -- what was logged until now says more than the error alone
            checks.check(False, "the smoke test itself: " + traceback.format_exc())
        for log in ("control.log", "server.log"):
            text = read(stack.log_directory / log)
            print(f"----- {log}, {len(text)} bytes, its end:\n{text[-2500:]}", flush=True)
        print(f"----- log of nursery, launchers and clients:\n{read(stack.log)[-3000:]}", flush=True)
    for row in checks.record.get("rows", []):
        print(
            "{cap:>5} %  {sm_count:>4} SMs  {tflops:>7} TFLOPS  {kernel_ms:>9} ms a kernel  {wall:>6} s".format(**row)
        )
    if options.output:
        options.output.write_text(json.dumps({**checks.record, "failed": checks.failed}, indent=1) + "\n")
    print(f"{len(checks.failed)} checks failed" + "".join(f"\n  {text}" for text in checks.failed))
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
