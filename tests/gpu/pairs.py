"""The ways out of a pair: two clients of one launcher at once, as the interference plan runs them.

The aggressor works under load until it is told that it is enough, the victim beside it. Both are brought to a random
moment, and the sweep, the launcher or one of the two is ended. All of this is harness `mpswatch`: it must harm nobody.
"""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any

from stacks import Stack, Talk, Unexpected
from ways import LEAVES_WITHIN, Way, all_gone, fault, request

VICTIM, AGGRESSOR = 1, 2
WINDOW = {"seconds": 0.5, "block": 0.02, "settle_least": 0.15, "settle_most": 0.3}
FOR_LONG = {**WINDOW, "seconds": 600.0}
KINDS = ("matmul", "stream", "launch")


class Pair:
    """The conversation with both: what one says while the other is listened to is kept."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.pids: dict[int, int] = {}
        self._kept: dict[int, list[dict[str, Any]]] = {VICTIM: [], AGGRESSOR: []}

    def say(self, word: str, order: int | None = None) -> None:
        self.talk.say(**{word: True if order is None else order})

    def hear(self, order: int, *words: str, seconds: float = 60.0) -> dict[str, Any]:
        """The next word of this one."""
        kept = self._kept[order]
        while not kept:
            said = self.talk.hear("forked", "attached", "running", "result", "failed", "gone", seconds=seconds)
            if "order" not in said:
                raise Unexpected(f"the launcher said {said}")
            self._kept[said["order"]].append(said)
        said = kept.pop(0)
        if said["word"] not in words:
            raise Unexpected(f"{words} of number {order} expected, {said} came")
        return said

    def attach(self, stack: Stack, rng: random.Random, order: int, **changes: object) -> None:
        """A client with its context, which has done nothing yet. The aggressor comes first."""
        sustained = FOR_LONG if order == VICTIM else {**FOR_LONG, "settle_least": 0.0, "settle_most": 0.0}
        wanted = request(stack, rng, passes=0, sustained={**sustained, "open_ended": order == AGGRESSOR})
        wanted |= {"order": order, "kind": rng.choice(KINDS), **({"beside": AGGRESSOR} if order == VICTIM else {})}
        self.talk.say(cell=wanted | changes)
        self.pids[order] = self.hear(order, "forked")["pid"]
        self.hear(order, "attached")

    def left(self, order: int, *exits: int) -> None:
        gone = self.hear(order, "gone", seconds=LEAVES_WITHIN)
        if gone["signal"] is not None or gone["exit"] not in exits:
            raise Unexpected(f"number {order} left with {gone}")

    def stopped(self, order: int) -> None:
        """It was asked to leave, or its lifeline was closed, and says so."""
        failed = self.hear(order, "failed", seconds=LEAVES_WITHIN)
        if failed["reason"] != "stopped":
            raise Unexpected(f"it failed otherwise: {failed}")
        self.left(order, 1)


def begun(stack: Stack, talk: Talk, rng: random.Random, **victim: object) -> Pair:
    """The aggressor at work, the victim told to go beside it."""
    pair = Pair(talk)
    pair.attach(stack, rng, AGGRESSOR)
    pair.attach(stack, rng, VICTIM, **victim)
    pair.say("go", AGGRESSOR)
    pair.hear(AGGRESSOR, "running")
    pair.say("go", VICTIM)
    return pair


def at_work(stack: Stack, talk: Talk, rng: random.Random) -> Pair:
    """Both somewhere between `go` and half a second later."""
    pair = begun(stack, talk, rng)
    time.sleep(rng.uniform(0.0, 0.6))
    return pair


def end(pair: Pair) -> None:
    pair.say("bye")
    pair.stopped(VICTIM)
    pair.stopped(AGGRESSOR)


def normal_end(stack: Stack, talk: Talk, rng: random.Random) -> None:
    pair = begun(stack, talk, rng, sustained=WINDOW)
    pair.hear(VICTIM, "result")
    pair.say("enough", AGGRESSOR)
    pair.hear(AGGRESSOR, "result")
    for order in (VICTIM, AGGRESSOR):
        pair.say("bye", order)
        pair.left(order, 0)


def told_to_leave(stack: Stack, talk: Talk, rng: random.Random) -> None:
    end(at_work(stack, talk, rng))


def deadline(stack: Stack, talk: Talk, rng: random.Random) -> None:
    """The victim's is over while both work; the aggressor goes on until it is told to leave."""
    pair = Pair(talk)
    pair.attach(stack, rng, AGGRESSOR)
    pair.say("go", AGGRESSOR)
    pair.hear(AGGRESSOR, "running")
    pair.attach(stack, rng, VICTIM, deadline=rng.uniform(2.0, 2.6))
    pair.say("go", VICTIM)
    failed = pair.hear(VICTIM, "failed")
    if failed["reason"] != "deadline":
        raise Unexpected(f"it failed otherwise: {failed}")
    pair.left(VICTIM, 1)
    pair.say("bye", AGGRESSOR)
    pair.stopped(AGGRESSOR)


def lifeline_closed(stack: Stack, talk: Talk, rng: random.Random) -> None:
    pair = at_work(stack, talk, rng)
    talk.launched.hang_up()
    pair.stopped(VICTIM)
    pair.stopped(AGGRESSOR)
    all_gone(talk)


def daemon_vanished(stack: Stack, talk: Talk, rng: random.Random) -> None:
    at_work(stack, talk, rng)
    talk.launched.close()
    all_gone(talk)


def one_fails(stack: Stack, talk: Talk, rng: random.Random) -> None:
    """An exception, MemoryError, SystemExit or out of memory in the victim, in any phase; the aggressor works on."""
    phase, changes = fault(
        rng.choice(("exception", "memory", "out_of_memory", "exit")), rng, ("go", "fill", "predict", "sustained")
    )
    pair = begun(stack, talk, rng, fail_in=changes["fail_in"])
    failed = pair.hear(VICTIM, "failed")
    if failed["phase"] != phase:
        raise Unexpected(f"it failed elsewhere: {failed}")
    pair.left(VICTIM, 1)
    pair.say("bye", AGGRESSOR)
    pair.stopped(AGGRESSOR)


def signals(stack: Stack, talk: Talk, rng: random.Random) -> None:
    """To the group, and to each of its session."""
    pair = at_work(stack, talk, rng)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        os.killpg(talk.pid, number)
        for pid in (talk.pid, *pair.pids.values()):
            os.kill(pid, number)
        time.sleep(rng.uniform(0.0, 0.02))
    end(pair)


def launcher_killed(stack: Stack, talk: Talk, rng: random.Random) -> None:
    at_work(stack, talk, rng)
    os.kill(talk.pid, signal.SIGKILL)
    all_gone(talk)


def victim_killed_before_go(stack: Stack, talk: Talk, rng: random.Random) -> None:
    """SIGKILL between attached and go: nothing of it is in flight, while the aggressor is at work."""
    pair = Pair(talk)
    pair.attach(stack, rng, AGGRESSOR)
    pair.say("go", AGGRESSOR)
    pair.hear(AGGRESSOR, "running")
    pair.attach(stack, rng, VICTIM)
    time.sleep(rng.uniform(0.0, 0.2))
    os.kill(pair.pids[VICTIM], signal.SIGKILL)
    if pair.hear(VICTIM, "gone")["signal"] != signal.SIGKILL:
        raise Unexpected("it was not the signal that ended it")
    pair.say("bye", AGGRESSOR)
    pair.stopped(AGGRESSOR)


PAIR_WAYS = (
    Way("a pair: normal end", "mpswatch", normal_end),
    Way("a pair: told to leave", "mpswatch", told_to_leave),
    Way("a pair: the victim's deadline reached", "mpswatch", deadline),
    Way("a pair: lifeline closed", "mpswatch", lifeline_closed, keeps=False),
    Way("a pair: daemon vanished", "mpswatch", daemon_vanished, keeps=False),
    Way("a pair: the victim fails in any phase", "mpswatch", one_fails),
    Way("a pair: signals to both, their group and session", "mpswatch", signals),
    Way("a pair: SIGKILL of the launcher at any moment", "mpswatch", launcher_killed, keeps=False),
    Way("a pair: SIGKILL of the victim between attached and go", "mpswatch", victim_killed_before_go),
)
