"""Each way in which a measuring client can come to its end, as one trial: `way(stack, launcher, random)`.

A trial brings a client to a random moment and ends it. Whether a neighbour died is asked afterwards, by the loop.
Harness `mpswatch`: must harm nobody. `known_unsafe`: what docs/security.md says cannot be survived. `naive`: a client
without our care, so that the danger stays shown.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stacks import Lines, Stack, Talk, Unexpected, gone, wait_until

CAPS = ("100", "75", "50", "25", "10")
UNDER_LOAD = {"passes": 0, "sustained": {"seconds": 600.0, "settle_least": 0.2, "settle_most": 0.4}}
LONG = ({"iters": 1_000_000}, {"iters": 400, "passes": 50, "rest": 0.15}, UNDER_LOAD)
"""What would compute for long: one pass, several with rests between them, and under load."""

PHASES = ("allocate", "attached", "go", "fill", "predict", "warm_up", "measure", "measure", "samples", "sustained",
          "sustained", "result")  # fmt: skip

LEAVES_WITHIN = 30.0


@dataclass(frozen=True)
class Way:
    """One way out. `keeps`: the launcher serves the next trial too. `most`: trials in one run, None for no bound."""

    name: str
    harness: str
    trial: Callable[[Stack, Talk, random.Random], None]
    keeps: bool = True
    most: int | None = None
    arguments: tuple[str, ...] = ("--fail-in", "cell")
    log: Path | None = None
    pid_namespace: bool = False
    launcher: bool = True


def cell(stack: Stack, talk: Talk, rng: random.Random, **changes: object) -> dict:
    """Ask for a cell that would compute for long, up to `attached`."""
    talk.say(cell=request(stack, rng, **changes))
    talk.hear("forked")
    return talk.hear("attached")


def request(stack: Stack, rng: random.Random, **changes: object) -> dict:
    """A cell that would compute for long, in one way or another."""
    size = 4096 if stack.backend == "torch" else 96
    wanted = {"order": rng.randrange(1000), "cap": rng.choice(CAPS), "size": size, "iters": 80, "dtype": "fp16"}
    wanted |= {"seed": rng.randrange(1 << 30), "deadline": 60.0, "warm_up": 3, "samples": 0}
    return {**wanted, **(changes if "iters" in changes or "sustained" in changes else rng.choice(LONG) | changes)}


def at_work(stack: Stack, talk: Talk, rng: random.Random, **changes: object) -> dict:
    """A cell somewhere between `go` and half a second later: filling, warming up, mostly measuring."""
    attached = cell(stack, talk, rng, **changes)
    talk.say(go=True)
    time.sleep(rng.uniform(0.0, 0.6))
    return attached


def left(talk: Talk, *exits: int) -> None:
    gone_line = talk.hear("gone", seconds=LEAVES_WITHIN)
    if gone_line["signal"] is not None or gone_line["exit"] not in exits:
        raise Unexpected(f"the client left with {gone_line}")


def end(talk: Talk) -> None:
    """Ask a client at work to leave, as a sweep that is stopped does."""
    talk.say(bye=True)
    failed = talk.hear("failed", seconds=LEAVES_WITHIN)
    if failed["reason"] != "stopped":
        raise Unexpected(f"it failed otherwise: {failed}")
    left(talk, 1)


def all_gone(talk: Talk) -> None:
    for pid in (*talk.children, talk.pid):
        wait_until(lambda pid=pid: gone(pid), LEAVES_WITHIN, f"{pid} stays, of the launcher {talk.pid}")


def normal_end(stack: Stack, talk: Talk, rng: random.Random, **changes: object) -> None:
    cell(stack, talk, rng, iters=80, samples=20, **changes)
    talk.say(go=True)
    talk.hear("result")
    talk.say(bye=True)
    left(talk, 0)


def thorough_end(stack: Stack, talk: Talk, rng: random.Random) -> None:
    """As the plan `thorough` asks: passes with rests between them, then under load until that has settled."""
    sustained = {"seconds": 0.3, "settle_least": 0.4, "settle_most": 0.8}
    normal_end(stack, talk, rng, passes=3, rest=0.15, sustained=sustained)


def told_to_leave(stack: Stack, talk: Talk, rng: random.Random) -> None:
    at_work(stack, talk, rng)
    end(talk)


def deadline(stack: Stack, talk: Talk, rng: random.Random) -> None:
    talk.say(cell=request(stack, rng, deadline=rng.uniform(0.2, 1.2)))
    talk.hear("forked")
    if talk.hear("attached", "failed")["word"] == "attached":
        talk.say(go=True)
        failed = talk.hear("failed")
        if failed["reason"] != "deadline":
            raise Unexpected(f"it failed otherwise: {failed}")
    left(talk, 1)


def lifeline_closed(stack: Stack, talk: Talk, rng: random.Random) -> None:
    at_work(stack, talk, rng)
    talk.launched.hang_up()
    talk.hear("failed")
    left(talk, 1)
    all_gone(talk)


def daemon_vanished(stack: Stack, talk: Talk, rng: random.Random) -> None:
    at_work(stack, talk, rng)
    talk.launched.close()
    all_gone(talk)


def stdout_closed(stack: Stack, talk: Talk, rng: random.Random) -> None:
    cell(stack, talk, rng, **rng.choice(({"iters": 80}, {"iters": 2000}, UNDER_LOAD)))
    talk.say(go=True)
    time.sleep(rng.uniform(0.0, 0.3))
    read_nothing_more(talk)
    with contextlib.suppress(Unexpected):  # one that had reported already waits for `bye`, drained
        wait_until(lambda: gone(talk.child), rng.uniform(0.0, 3.0), "the client stays")
    talk.launched.hang_up()
    all_gone(talk)


def read_nothing_more(talk: Talk) -> None:
    """Close the end we read from, under the same number, so that the launcher's next word breaks its pipe."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, talk.launched.receive_fd)
    os.close(nothing)


def raising(kind: str) -> Callable[[Stack, Talk, random.Random], None]:
    def trial(stack: Stack, talk: Talk, rng: random.Random) -> None:
        phase, changes = fault(kind, rng)
        talk.say(cell=request(stack, rng, **changes))
        talk.hear("forked")
        if phase not in ("allocate", "attached"):
            talk.hear("attached")
            talk.say(go=True)
        failed = talk.hear("failed")
        if failed["phase"] != phase:
            raise Unexpected(f"it failed elsewhere: {failed}")
        left(talk, 1)

    return trial


def fault(kind: str, rng: random.Random, phases: tuple[str, ...] = PHASES) -> tuple[str, dict]:
    """A phase, and what a cell is asked so that it comes to it and strikes there."""
    phase = rng.choice(phases)
    many = phase in ("measure", "sustained")
    strike = f"{phase}:{kind}:{rng.randint(1, 60) if many else 1}"
    changes = UNDER_LOAD if phase == "sustained" else {"iters": 80 if phase in ("samples", "result") else 1_000_000}
    return phase, {**changes, "samples": 5 if phase == "samples" else 0, "fail_in": strike}


def signals_to_the_client(stack: Stack, talk: Talk, rng: random.Random) -> None:
    at_work(stack, talk, rng)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        os.kill(talk.child, number)
        time.sleep(rng.uniform(0.0, 0.02))
    end(talk)


def signals_to_group_and_session(stack: Stack, talk: Talk, rng: random.Random) -> None:
    at_work(stack, talk, rng)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        os.killpg(talk.pid, number)
        for pid in (talk.pid, talk.child):  # the session's members
            os.kill(pid, number)
    end(talk)


def launcher_killed_idle(stack: Stack, talk: Talk, rng: random.Random) -> None:
    normal_end(stack, talk, rng)
    os.kill(talk.pid, signal.SIGKILL)
    all_gone(talk)


def launcher_killed(stack: Stack, talk: Talk, rng: random.Random) -> None:
    at_work(stack, talk, rng)
    os.kill(talk.pid, signal.SIGKILL)
    all_gone(talk)


def client_killed_before_go(stack: Stack, talk: Talk, rng: random.Random) -> None:
    cell(stack, talk, rng)
    time.sleep(rng.uniform(0.0, 0.1))
    os.kill(talk.child, signal.SIGKILL)
    if talk.hear("gone")["signal"] != signal.SIGKILL:
        raise Unexpected("it was not the signal that ended it")


def client_killed_after_go(stack: Stack, talk: Talk, rng: random.Random) -> None:
    """Between `go` and the first kernel: the client itself strikes there, which no signal from outside could aim at."""
    cell(stack, talk, rng, fail_in="go:die")
    talk.say(go=True)
    if talk.hear("gone")["signal"] != signal.SIGKILL:
        raise Unexpected("it was not the signal that ended it")


def client_killed_at_work(stack: Stack, talk: Talk, rng: random.Random) -> None:
    at_work(stack, talk, rng, iters=1_000_000)
    time.sleep(0.5)  # past the warm-up
    os.kill(talk.child, signal.SIGKILL)
    talk.hear("gone")


def client_exits_loaded(stack: Stack, talk: Talk, rng: random.Random) -> None:
    cell(stack, talk, rng, iters=1_000_000, fail_in=f"measure:os_exit:{rng.randint(1, 40)}")
    talk.say(go=True)
    talk.hear("gone")


def namespace_killed(stack: Stack, talk: Talk, rng: random.Random) -> None:
    at_work(stack, talk, rng, iters=1_000_000)
    time.sleep(0.5)
    os.kill(talk.pid, signal.SIGKILL)
    wait_until(lambda: gone(talk.pid), LEAVES_WITHIN, "the launcher stays")
    time.sleep(0.2)


def timeout_kills(stack: Stack, talk: Talk, rng: random.Random) -> None:
    """subprocess.run(client, timeout=…), as it is everywhere: SIGKILL when the time is up."""
    pid, send_fd, receive_fd = stack.birth("naive", cap=rng.choice(CAPS))
    said = Lines(receive_fd, "the naive client").next(60)
    time.sleep(rng.uniform(0.05, 0.5))
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: gone(pid), LEAVES_WITHIN, "the naive client stays")
    os.close(send_fd)
    os.close(receive_fd)
    if not said or "working" not in said:
        raise Unexpected(f"the naive client said {said}")


WAYS = (
    Way("normal end", "mpswatch", normal_end),
    Way("normal end of a thorough cell", "mpswatch", thorough_end),
    Way("told to leave", "mpswatch", told_to_leave),
    Way("deadline reached", "mpswatch", deadline),
    Way("lifeline closed", "mpswatch", lifeline_closed, keeps=False),
    Way("daemon vanished (kill -9: both pipes closed)", "mpswatch", daemon_vanished, keeps=False),
    Way("stdout closed", "mpswatch", stdout_closed, keeps=False),
    Way("log on a full disk", "mpswatch", told_to_leave, keeps=False, log=Path("/dev/full")),
    Way("exception in any phase", "mpswatch", raising("exception")),
    Way("MemoryError in any phase", "mpswatch", raising("memory")),
    Way("CUDA out of memory in any phase", "mpswatch", raising("out_of_memory")),
    Way("SystemExit in any phase", "mpswatch", raising("exit")),
    Way("SIGTERM, SIGINT, SIGHUP, SIGQUIT to the client", "mpswatch", signals_to_the_client),
    Way("the same to its group and session", "mpswatch", signals_to_group_and_session),
    Way("SIGKILL of the launcher while idle", "mpswatch", launcher_killed_idle, keeps=False),
    Way("SIGKILL of the launcher at any moment", "mpswatch", launcher_killed, keeps=False),
    Way("SIGKILL of the client between attached and go", "mpswatch", client_killed_before_go),
    Way("SIGKILL of the client between go and its first kernel", "mpswatch", client_killed_after_go),
    Way("SIGKILL of the client at work", "known_unsafe", client_killed_at_work, most=6),
    Way("os._exit at work", "known_unsafe", client_exits_loaded, most=6),
    Way("SIGKILL of the launcher as pid 1 of a pid namespace", "known_unsafe", namespace_killed, keeps=False, most=6,
        pid_namespace=True),
    Way("a subprocess with a timeout that kills", "naive", timeout_kills, most=20, launcher=False),
)  # fmt: skip
