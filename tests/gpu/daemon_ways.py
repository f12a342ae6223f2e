"""The ways in which mpswatch itself comes to its end while it sweeps: the daemon, the command, and what they stand on.

    python3 tests/gpu/daemon_ways.py --seconds 240 --stacks 4 --output daemon-ways.json
    python3 tests/gpu/daemon_ways.py --rehearsal --trials 1                             (without a GPU)

Every trial is a whole program, `mpswatch run` or `mpswatch sweep`, on a private stack with busy neighbours: it is
started, it starts its launcher, and at a random moment, mostly while a measuring client is there, it is struck.
Afterwards nothing of it may be left, in /proc, in the daemon's list or on the lock, and the neighbours must do new
work. Rows go to OUTPUT as survival.py's do; OUTPUT's name with -trials tells of each trial by itself.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import results
import survival
from programs import CELL_DEADLINE, Ground, RealGround, RehearsedGround, Sweeping
from stacks import Unexpected, driver, missing
from ways import CAPS, WAYS, Way

LONG = 1_000_000
"""Iterations that no cell gets through before its deadline."""

INTERRUPTED, LEFT_AT_ONCE, REFUSED = 5, 130, 3
FROZEN_SECONDS = CELL_DEADLINE + 2.0
STOPPED_SECONDS = 10.0
DEFAULT_CELL_DEADLINE = 30.0

lock = threading.Lock()
told: list[dict[str, Any]] = []
"""What each trial came to, for OUTPUT-trials.json."""


def plan(rng: random.Random) -> dict[str, Any]:
    """Two caps that would compute for long, or all caps as they are by default: then it strikes between cells too."""
    if rng.random() < 0.7:
        return {"caps": [int(cap) for cap in rng.sample(CAPS, 2)], "iters": LONG}
    return short(rng)


def short(rng: random.Random) -> dict[str, Any]:
    """Cells that come to their own end."""
    return {"caps": [int(cap) for cap in rng.sample(CAPS, 3)], "iters": rng.choice((80, 400))}


def random_moment(program: Sweeping, rng: random.Random) -> list[int]:
    """Wait for it: one in eight while the launcher comes up, else while a client is there. Who was on the server then.

    A client is listed from its context on, so half a second later it has been told to go and works.
    """
    if rng.random() < 1 / 8:
        program.wait_for_a_launcher()
        time.sleep(rng.uniform(0.0, 2.0))
    else:
        program.wait_for_a_client()
        time.sleep(rng.uniform(0.0, 0.6))
    return program.look()


Strike = Callable[[Ground, Path, random.Random, dict[str, Any]], None]


def way(name: str, strike: Strike, harness: str = "mpswatch") -> Way:
    """A way of survival.py's from what is done in it; `note` gathers what the trial came to."""

    def trial(ground: Any, _talk: object, rng: random.Random) -> None:
        folder = Path(tempfile.mkdtemp(prefix="trial-", dir=ground.root))
        note: dict[str, Any] = {"way": name, "stack": ground.number}
        began = time.monotonic()
        try:
            strike(ground, folder, rng, note)
        except Exception as error:
            note["spoilt"] = f"{type(error).__name__}: {error}"[:2000]
            raise
        finally:
            note["seconds"] = round(time.monotonic() - began, 2)
            with lock:
                told.append(note)
            shutil.rmtree(folder, ignore_errors=True)

    return Way(name, harness, trial, keeps=False, launcher=False)


def started(
    ground: Ground, folder: Path, command: str, rng: random.Random, **options: Any
) -> contextlib.closing[Sweeping]:
    sweep = options.pop("sweep", None) or plan(rng)
    return contextlib.closing(Sweeping(ground, folder, command, **options, **sweep))


def struck(program: Sweeping, note: dict[str, Any], at: list[int]) -> None:
    note |= {"after": round(time.monotonic() - program.started, 3), "clients": len(at)}


def came_to(program: Sweeping, note: dict[str, Any], *codes: int) -> None:
    """The program's end, and then the end of all that it started."""
    if codes:
        note["exit"] = program.ended(*codes)
    note["gone_after"] = round(program.nothing_remains(), 3)
    note["runs"] = [run["complete_sweep"] for run in program.runs()]


# --- `mpswatch run`


def signalled(number: int, *codes: int) -> Strike:
    def strike(ground: Ground, folder: Path, rng: random.Random, note: dict[str, Any]) -> None:
        with started(ground, folder, "run", rng) as program:
            struck(program, note, random_moment(program, rng))
            program.signal(number)
            # A signal in the interpreter's first moments, before there is a handler, ends it by itself.
            came_to(program, note, *codes, -number)

    return strike


def hung_up(ground: Ground, folder: Path, rng: random.Random, note: dict[str, Any]) -> None:
    """SIGHUP: with a terminal it stops; without one it reloads and the sweep goes on, and then SIGKILL ends it."""
    terminal = rng.random() < 0.5
    with started(ground, folder, "run", rng, terminal=terminal) as program:
        note["terminal"] = terminal
        struck(program, note, random_moment(program, rng))
        program.signal(signal.SIGHUP)
        if terminal:
            came_to(program, note, 0, -signal.SIGHUP)
            return
        time.sleep(rng.uniform(0.0, 0.5))
        program.look()
        program.signal(signal.SIGKILL)
        came_to(program, note, -signal.SIGKILL, -signal.SIGHUP)


def group_signalled(ground: Ground, folder: Path, rng: random.Random, note: dict[str, Any]) -> None:
    with started(ground, folder, "run", rng) as program:
        struck(program, note, random_moment(program, rng))
        os.killpg(program.pid, signal.SIGTERM)
        came_to(program, note, 0, -signal.SIGTERM)


def session_signalled(ground: Ground, folder: Path, rng: random.Random, note: dict[str, Any]) -> None:
    with started(ground, folder, "run", rng) as program:
        struck(program, note, random_moment(program, rng))
        program.signal_session(signal.SIGTERM)
        came_to(program, note, 0, -signal.SIGTERM)


def frozen(ground: Ground, folder: Path, rng: random.Random, note: dict[str, Any]) -> None:
    """SIGSTOP for longer than a cell may take: the client must have gone by itself before SIGCONT."""
    with started(ground, folder, "run", rng) as program:
        struck(program, note, random_moment(program, rng))
        program.signal(signal.SIGSTOP)
        until = time.monotonic() + FROZEN_SECONDS
        while time.monotonic() < until:
            program.look()
            time.sleep(0.25)
        if left := ground.clients():
            raise Unexpected(f"clients {left} are there although the daemon was frozen for {FROZEN_SECONDS:g} s")
        program.signal(signal.SIGCONT)
        time.sleep(rng.uniform(0.0, 0.5))
        program.look()
        program.signal(signal.SIGTERM)
        came_to(program, note, 0, -signal.SIGTERM)


def stopped_for_a_while(ground: Ground, folder: Path, rng: random.Random, note: dict[str, Any]) -> None:
    """SIGSTOP for 10 s with a cell's default deadline: its client works on, or waits for it, and the sweep goes on."""
    sweep = {**plan(rng), "cell_deadline": DEFAULT_CELL_DEADLINE}
    with started(ground, folder, "run", rng, sweep=sweep) as program:
        struck(program, note, random_moment(program, rng))
        program.signal(signal.SIGSTOP)
        stopped = time.monotonic()
        while time.monotonic() < stopped + STOPPED_SECONDS:
            if program.look():
                note["client_seen_for"] = round(time.monotonic() - stopped, 1)
            time.sleep(0.25)
        note["iters"] = sweep["iters"]
        program.signal(signal.SIGCONT)
        until = time.monotonic() + (rng.uniform(0.0, 1.0) if sweep["iters"] == LONG else 4.0)
        while time.monotonic() < until and not program.runs():
            program.look()
            time.sleep(0.1)
        program.signal(signal.SIGTERM)
        came_to(program, note, 0, -signal.SIGTERM)


def stopped_as_by_systemd(ground: Ground, folder: Path, rng: random.Random, note: dict[str, Any]) -> None:
    """KillMode=process whose time to stop is over: SIGTERM, and SIGKILL soon after, both to the main process only."""
    with started(ground, folder, "run", rng) as program:
        struck(program, note, random_moment(program, rng))
        program.signal(signal.SIGTERM)
        time.sleep(rng.uniform(0.0, 0.2))
        program.signal(signal.SIGKILL)
        came_to(program, note, 0, -signal.SIGKILL, -signal.SIGTERM)


# --- `mpswatch sweep`


def ctrl_c(times: int) -> Strike:
    def strike(ground: Ground, folder: Path, rng: random.Random, note: dict[str, Any]) -> None:
        with started(ground, folder, "sweep", rng, terminal=True) as program:
            struck(program, note, random_moment(program, rng))
            for _ in range(times):
                program.type(b"\x03")
                time.sleep(rng.uniform(0.0, 0.1))
            # 1, -2: typed before there was a handler (KeyboardInterrupt while importing)
            came_to(program, note, INTERRUPTED, LEFT_AT_ONCE, 0, 1, 130, -signal.SIGINT)

    return strike


def terminal_closed(ground: Ground, folder: Path, rng: random.Random, note: dict[str, Any]) -> None:
    with started(ground, folder, "sweep", rng, terminal=True) as program:
        struck(program, note, random_moment(program, rng))
        program.hang_up()
        came_to(program, note, INTERRUPTED, 0, -signal.SIGHUP)


def output_closed(ground: Ground, folder: Path, rng: random.Random, note: dict[str, Any]) -> None:
    """Nobody reads stdout and stderr any more: the command measures on, the daemon too until it is told to stop."""
    command = rng.choice(("sweep", "run"))
    with started(ground, folder, command, rng, pipe=True, sweep=short(rng)) as program:
        struck(program, note, random_moment(program, rng))
        note["command"] = command
        program.hang_up()
        if command == "run":
            time.sleep(rng.uniform(0.0, 1.0))
            program.look()
            program.signal(signal.SIGTERM)
        came_to(program, note, 0, 1, 4, -signal.SIGTERM)


def disk_full(ground: Ground, folder: Path, rng: random.Random, note: dict[str, Any]) -> None:
    """Archive, temporary files and log are on a file system that is full from a random moment on."""
    disk = folder / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)], check=False).returncode != 0:
        raise Unexpected("no tmpfs can be mounted here")
    command = rng.choice(("sweep", "run"))
    try:
        environment = {"TMPDIR": str(disk)}
        options = {"log": disk / "log", "environment": environment, "sweep": short(rng)}
        with started(ground, disk, command, rng, **options) as program:
            struck(program, note, random_moment(program, rng))
            note["command"] = command
            with (disk / "filling").open("wb", buffering=0) as filling, contextlib.suppress(OSError):
                while True:
                    filling.write(b"x" * 4096)
            if command == "run":
                time.sleep(rng.uniform(0.0, 1.0))
                program.look()
                program.signal(signal.SIGTERM)
            came_to(program, note, 0, 1, 4, -signal.SIGTERM)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


# --- what both stand on


def control_daemon_frozen(ground: Ground, folder: Path, rng: random.Random, note: dict[str, Any]) -> None:
    """The control daemon answers nobody for a while, and mpswatch is told to stop before, or after, it does again."""
    with started(ground, folder, "run", rng) as program:
        struck(program, note, random_moment(program, rng))
        ground.freeze()
        try:
            time.sleep(rng.uniform(0.5, 4.0))
            before = rng.random() < 0.5
            if before:
                program.signal(signal.SIGTERM)
                time.sleep(rng.uniform(0.0, 1.0))
        finally:
            ground.thaw()
        program.look()
        if not before:
            program.signal(signal.SIGTERM)
        came_to(program, note, 0, -signal.SIGTERM)


def two_at_once(ground: Ground, folder: Path, rng: random.Random, note: dict[str, Any]) -> None:
    """A command beside the daemon in mid-sweep, or two commands started together: one sweeps, and both are ended."""
    together = rng.random() < 0.5
    first_folder, second_folder = folder / "first", folder / "second"
    for each in (first_folder, second_folder):
        each.mkdir()
    with started(ground, first_folder, "sweep" if together else "run", rng) as first:
        if not together:
            struck(first, note, random_moment(first, rng))
        with started(ground, second_folder, "sweep", rng) as second:
            note["together"] = together
            if together:
                until = time.monotonic() + 30
                while not (first.look() + second.look()):
                    if time.monotonic() > until:
                        raise Unexpected(f"neither measures: {first.said()[-700:]} {second.said()[-700:]}")
                    time.sleep(0.04)
                time.sleep(rng.uniform(0.0, 0.6))
                struck(second, note, second.look())
            if len(most := ground.clients()) > 1:
                raise Unexpected(f"two clients of ours at once: {most}")
            if not together:
                note["second"] = second.ended(REFUSED, 0, 4)  # 0, 4: the first one's sweep was over
            for each in (first, second):
                each.signal(signal.SIGINT)
            note["exits"] = [each.ended() for each in (first, second)]
            second.nothing_remains()
        came_to(first, note)


DAEMON_WAYS = (
    way("Ctrl-C on `mpswatch sweep` in a terminal", ctrl_c(1)),
    way("Ctrl-C twice on `mpswatch sweep` in a terminal", ctrl_c(2)),
    way("terminal of `mpswatch sweep` closed", terminal_closed),
    way("SIGTERM of the daemon", signalled(signal.SIGTERM, 0)),
    way("SIGINT of the daemon", signalled(signal.SIGINT, 0, 1)),
    way("SIGQUIT of the daemon", signalled(signal.SIGQUIT)),
    way("SIGHUP of the daemon (terminal: stops; else reload, then SIGKILL)", hung_up),
    way("SIGKILL of the daemon", signalled(signal.SIGKILL)),
    way("SIGTERM to the daemon's process group", group_signalled),
    way("SIGTERM to all of the daemon's and the launcher's sessions", session_signalled),
    way("daemon stopped (SIGSTOP) beyond the cell's deadline", frozen),
    way("daemon stopped (SIGSTOP) for 10 s, the cell's deadline 30 s", stopped_for_a_while),
    way("stdout and stderr of the program closed", output_closed),
    way("disk full under archive, log and temporary files", disk_full),
    way("control daemon frozen in mid-sweep", control_daemon_frozen),
    way("two mpswatch processes at once", two_at_once),
    way("as systemd stops it: SIGTERM, then SIGKILL of the main process", stopped_as_by_systemd),
)


def run(options: argparse.Namespace) -> int:
    if not options.rehearsal and (lacks := missing()):
        print("the suite cannot run:\n  " + "\n  ".join(lacks), file=sys.stderr)
        return 2
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # SIGQUIT writes a core otherwise
    ways = [
        each for each in DAEMON_WAYS if options.only in each.name and not (options.but and options.but in each.name)
    ]
    unsafe = [each for each in WAYS if each.harness == "known_unsafe"] if options.known_unsafe else []
    began = time.monotonic()
    tally = Tally(options.output, "rehearsal" if options.rehearsal else driver(), options.stacks)
    tally.most = options.trials or math.inf
    seed = options.seed if options.seed is not None else random.randrange(1 << 30)
    print(f"seed {seed}, {len(ways)} ways, {options.stacks} stacks, {options.seconds:g} s", flush=True)

    def live(number: int) -> None:
        try:
            with (RehearsedGround if options.rehearsal else RealGround)(root, number) as ground:
                print(f"[stack {number}] ready after {time.monotonic() - began:.1f} s", flush=True)
                until = began + options.seconds - (options.unsafe_seconds if unsafe else 0)
                survival.serve(ground, tally, ways, until, seed + number)
                survival.serve(ground, tally, unsafe, began + options.seconds, seed - number)
                print(f"[stack {number}] left on the server: {ground.control('ps')!r}", flush=True)
        except Exception:  # noqa: BLE001 -- the other stacks go on
            print(f"[stack {number}]\n{traceback.format_exc()}", flush=True)

    with tempfile.TemporaryDirectory(prefix="mpsw-", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        threads = [threading.Thread(target=live, args=(number,)) for number in range(options.stacks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    at_work = sum(1 for note in told if note.get("clients"))
    print(f"{len(told)} trials, {at_work} of them struck while a client was on the server")
    return survival.report(tally, ways + unsafe)


class Tally(survival.Tally):
    """As in survival.py, and each trial's own note."""

    def write(self) -> None:
        if self.output is not None:
            results.write(self.output, self.rows())
            with lock:
                lines = [json.dumps(note) for note in told]
            notes = self.output.with_name(self.output.stem + "-trials.json")
            notes.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=240, help="how long to go on, the stacks' start included")
    parser.add_argument("--stacks", type=int, default=1, choices=range(1, 5), help="private stacks side by side")
    parser.add_argument("--trials", type=int, help="at most so many trials of each way")
    parser.add_argument("--output", type=Path, help="a JSON file, written after every trial")
    parser.add_argument("--only", default="", help="ways whose name holds this")
    parser.add_argument("--but", default="", help="no way whose name holds this")
    parser.add_argument("--known-unsafe", action="store_true", help="at the end also what cannot be survived")
    parser.add_argument("--unsafe-seconds", type=float, default=25, help="how much of --seconds that has")
    parser.add_argument("--rehearsal", action="store_true", help="without a GPU, on a rehearsal's stack")
    parser.add_argument("--seed", type=int)
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
