"""The harmlessness suite: every way out, many times, beside busy neighbours on the same server.

    python3 tests/gpu/survival.py --seconds 240 --stacks 4 --output survival.json
    python3 tests/gpu/survival.py add survival.json docs/measurements/survival.json    (trials add up over runs)
    python3 tests/gpu/survival.py table docs/measurements/survival.json                (docs/measurements/survival.md)

Results are written after every trial, so that whatever was reached when the time ran out is valid. Exit code 1 where
a neighbour died in harness `mpswatch`, or where a way never came to a trial that counts.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import results
from pairs import PAIR_WAYS
from stacks import Stack, Talk, Unexpected, driver, gone, missing
from ways import WAYS, Way

FAILURES_IN_A_ROW = 5


class Tally:
    """What came out, by way; shared by the threads of all stacks, written after every trial."""

    def __init__(self, output: Path | None, driver_version: str, stacks: int) -> None:
        self.lock = threading.Lock()
        self.most: float = math.inf
        self.output, self.driver, self.stacks = output, driver_version, stacks
        self.trials: Counter[Way] = Counter()
        self.taken: Counter[Way] = Counter()
        self.deaths: Counter[Way] = Counter()
        self.spoilt: dict[Way, list[str]] = defaultdict(list)
        self.exposure: dict[str, list[dict]] = defaultdict(list)

    def take(self, ways: list[Way]) -> Way | None:
        """The way that has had the fewest trials, round and round; None when every way has had its most."""
        with self.lock:
            left = [way for way in ways if self.taken[way] < min(way.most or self.most, self.most)]
            way = min(left, key=lambda way: self.taken[way], default=None)
            if way is not None:
                self.taken[way] += 1
            return way

    def note(self, way: Way, *, died: bool) -> None:
        with self.lock:
            self.trials[way] += 1
            self.deaths[way] += died
            self.write()

    def write(self) -> None:
        if self.output is not None:
            results.write(self.output, self.rows())
            results.write(self.output.with_name(self.output.stem + "-exposure.json"), self.exposures())

    def rows(self) -> list[dict]:
        date = datetime.now(UTC).date().isoformat()
        return [
            {"way": way.name, "harness": way.harness, "trials": self.trials[way], "neighbours_dead": self.deaths[way],
             "date": date, "driver": self.driver}
            for way in self.trials if self.trials[way]
        ]  # fmt: skip

    def exposures(self) -> list[dict]:
        """By cap, from whole cells: the longest time in flight between two looks, and how long anything was."""
        return [
            {
                "cap": cap,
                "cells": len(seen),
                "longest_unwatched_most": max(one["longest_unwatched"] for one in seen),
                "longest_unwatched_median": statistics.median(one["longest_unwatched"] for one in seen),
                "kernel_median": statistics.median(one["kernel"] for one in seen),
                "busy_median": statistics.median(one["busy"] for one in seen),
                "cell_median": statistics.median(one["cell"] for one in seen),
                "stacks": self.stacks,
                "driver": self.driver,
            }
            for cap, seen in sorted(self.exposure.items(), key=lambda item: -float(item[0]))
        ]


def serve(stack: Stack, tally: Tally, ways: list[Way], until: float, seed: int) -> None:
    """Trial after trial on one stack, until the time is up."""
    rng = random.Random(seed)
    talk: Talk | None = None
    failed_in_a_row = 0
    while time.monotonic() < until and failed_in_a_row < FAILURES_IN_A_ROW:
        way = tally.take(ways)
        if way is None:
            break
        began, spoilt, keep = time.monotonic(), None, way.keeps
        try:
            if way.launcher and (talk is None or not way.keeps):
                retire(stack, talk)
                talk = None
                talk = stack.warm_launcher(*way.arguments, log=way.log, pid_namespace=way.pid_namespace)
            way.trial(stack, talk, rng)
            expose(tally, talk)
        except Exception as error:  # noqa: BLE001 -- a trial that went wrong is told about and does not count
            spoilt = f"{type(error).__name__}: {error}"
            if not isinstance(error, Unexpected):
                spoilt += "\n" + traceback.format_exc()
            keep = False
        if way.launcher and not keep:
            try:
                retire(stack, talk)
            except Unexpected as error:
                spoilt = f"{spoilt or ''} {error}"
            talk = None
        try:
            died = stack.dead()
        except Exception as error:  # noqa: BLE001 -- without neighbours there is nothing to learn here any more
            print(f"[stack {stack.number}] no neighbours: {error}", flush=True)
            return
        # a death counts even where the trial itself went wrong: it may be why
        if spoilt is None or died:
            tally.note(way, died=bool(died))
        if spoilt is not None:
            tally.spoilt[way].append(spoilt)
        failed_in_a_row = failed_in_a_row + 1 if spoilt else 0
        print(
            f"[stack {stack.number}] {time.monotonic() - began:5.2f} s  {way.harness}: {way.name}"
            f"{'  DIED: ' + '; '.join(died) if died else ''}{'  SPOILT: ' + spoilt if spoilt else ''}",
            flush=True,
        )
    retire(stack, talk)


def retire(stack: Stack, talk: Talk | None) -> None:
    """Let a launcher go: close its pipes and wait for it, since the next one needs its lock."""
    if talk is not None:
        talk.launched.close()
        until = time.monotonic() + 60
        for pid in (talk.pid, *talk.children):
            while not gone(pid):
                if time.monotonic() > until:
                    raise Unexpected(f"[stack {stack.number}] {pid} does not leave")
                time.sleep(0.005)


def expose(tally: Tally, talk: Talk | None) -> None:
    """Keep what whole cells said about their exposure, once each."""
    if talk is None:
        return
    forked = 0.0
    for at, message in talk.heard:
        ((word, body),) = message.items()
        if word == "forked":
            forked = at
        if word == "result" and body["samples"]:
            seen = {"longest_unwatched": body["pieces"]["longest_unwatched"], "busy": body["timings"]["busy"]}
            seen |= {"kernel": statistics.median(body["samples"]), "cell": at - forked}
            with tally.lock:
                tally.exposure[body["cap"]].append(seen)
    talk.heard.clear()


def chosen(options: argparse.Namespace) -> list[Way]:
    harnesses = (
        {"mpswatch"} | ({"known_unsafe"} if options.known_unsafe else set()) | ({"naive"} if options.naive else set())
    )
    ways = [
        way
        for way in (*WAYS, *PAIR_WAYS)
        if way.harness in harnesses and (not options.only or options.only in way.name)
    ]
    if not ways:
        sys.exit(f"no way is called {options.only!r}")
    return ways


def run(options: argparse.Namespace) -> int:
    if not options.rehearsal and (lacks := missing()):
        print("the survival suite cannot run:\n  " + "\n  ".join(lacks), file=sys.stderr)
        return 2
    ways, until = chosen(options), time.monotonic() + options.seconds
    safe = [way for way in ways if way.harness == "mpswatch"]
    unsafe = [way for way in ways if way not in safe]
    until_unsafe = until - (options.unsafe_seconds if unsafe else 0)
    tally = Tally(options.output, "rehearsal" if options.rehearsal else driver(), options.stacks)
    tally.most = options.trials or math.inf
    seed = options.seed if options.seed is not None else random.randrange(1 << 30)
    print(f"seed {seed}, {len(ways)} ways, {options.stacks} stacks, {options.seconds:g} s", flush=True)

    def live(number: int) -> None:
        try:
            with Stack(root, number, rehearsal=options.rehearsal) as stack:
                print(f"[stack {number}] ready", flush=True)
                serve(stack, tally, safe, until_unsafe, seed + number)
                serve(stack, tally, unsafe, until, seed - number)  # last: a fault may reach into the next trial
                if not options.rehearsal:
                    print(f"[stack {number}] left on the server: {stack.control('ps')!r}", flush=True)
        except Exception:  # noqa: BLE001 -- the other stacks go on
            print(f"[stack {number}]\n{traceback.format_exc()}", flush=True)

    with tempfile.TemporaryDirectory(prefix="mpswatch-survival-") as folder:
        root = Path(folder)
        threads = [threading.Thread(target=live, args=(number,)) for number in range(options.stacks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return report(tally, ways)


def report(tally: Tally, ways: list[Way]) -> int:
    tally.write()
    print("\n" + results.table(tally.rows()))
    print(results.exposure_table(tally.exposures()))
    for way, causes in tally.spoilt.items():
        print(f"spoilt, {way.name}: {len(causes)}; the last: {causes[-1]}")
    never = [way.name for way in ways if not tally.trials[way]]
    if never:
        print("no trial that counts: " + ", ".join(never))
    harmed = sum(tally.deaths[way] for way in ways if way.harness == "mpswatch")
    tried = sum(tally.trials[way] for way in ways if way.harness == "mpswatch")
    print(f"harness mpswatch: {tried} trials, {harmed} with a death")
    return 1 if harmed or never or any(tally.spoilt.values()) else 0


def main() -> int:
    if sys.argv[1:2] == ["add"]:
        results.add(Path(sys.argv[2]), Path(sys.argv[3]))
        return 0
    if sys.argv[1:2] == ["table"]:
        print(results.table(json.loads(Path(sys.argv[2]).read_text())))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=240, help="how long to go on, the stacks' start included")
    parser.add_argument(
        "--stacks", type=int, default=1, choices=range(1, 5), help="private control daemons side by side"
    )
    parser.add_argument("--trials", type=int, help="at most so many trials of each way")
    parser.add_argument("--output", type=Path, help="a JSON file, written after every trial")
    parser.add_argument("--only", default="", help="ways whose name holds this")
    parser.add_argument("--naive", action="store_true", help="also the naive harness: each death is a GPU fault")
    parser.add_argument("--known-unsafe", action="store_true", help="also what cannot be survived, a few times")
    parser.add_argument("--unsafe-seconds", type=float, default=25, help="how much of --seconds these two have")
    parser.add_argument("--rehearsal", action="store_true", help="without a GPU, against the tests' rehearsal server")
    parser.add_argument("--seed", type=int)
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
