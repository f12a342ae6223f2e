"""What a real control daemon answers, byte for byte, to the questions of a look: a recording for mps/grammar.

    python3 tests/gpu/replies.py --output replies.json [--seconds 10]

Before the first client, with clients, after the last one has left; then for some seconds two askers side by side while
clients come and go, each answer read by the grammar, and kept where that refuses it.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import ways
from programs import RealGround
from stacks import CONTROL, driver, missing
from survival import retire

from mpswatch.errors import MpswatchError
from mpswatch.mps import commands, grammar


def ask(ground: RealGround, server: str, *, with_contexts: bool = True) -> tuple[bytes, bytes, bytes, int]:
    """The script of a look, and what came to it."""
    script = commands.script([int(server)] if server else [], with_contexts=with_contexts)
    answer = subprocess.run([CONTROL], input=script, env=ground.env, capture_output=True, timeout=20, check=False)
    return script, answer.stdout, answer.stderr, answer.returncode


def told(when: str, asked: tuple[bytes, bytes, bytes, int], server: str) -> dict[str, Any]:
    script, out, error, code = asked
    refused = None
    try:
        grammar.parse(out, servers=[int(server)] if server else [], with_contexts=b"ps\n" in script)
    except MpswatchError as reply:
        refused = reply.detail
    return {"when": when, "script": script.decode(), "stdout": out.decode("utf-8", "backslashreplace"),
            "stderr": error.decode("utf-8", "backslashreplace"), "returncode": code, "refused": refused}  # fmt: skip


def first_server(ground: RealGround) -> str:
    return (ground.control("get_server_list").split() or [""])[0]


def side_by_side(ground: RealGround, server: str, seconds: float) -> dict[str, Any]:
    """Two askers while cells come and go."""
    until, odd, asked = time.monotonic() + seconds, [], [0, 0]

    def asker(number: int) -> None:
        while time.monotonic() < until:
            answer = told("side by side", ask(ground, server, with_contexts=bool(number)), server)
            asked[number] += 1
            if answer["refused"] or answer["returncode"] or answer["stderr"]:
                odd.append(answer)
            time.sleep(0.01)

    threads = [threading.Thread(target=asker, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    talk, rng = ground.warm_launcher(), random.Random(3)
    while time.monotonic() < until:
        ways.normal_end(ground, talk, rng)
    retire(ground, talk)
    for thread in threads:
        thread.join()
    return {"asked": asked, "odd": odd[:20], "odd_in_all": len(odd)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    if lacks := missing():
        print("the suite cannot run:\n  " + "\n  ".join(lacks), file=sys.stderr)
        return 2
    found: dict[str, Any] = {"driver": driver(), "replies": []}
    with tempfile.TemporaryDirectory(prefix="mpsw-") as folder, RealGround(Path(folder), 0, ()) as ground:

        def record(when: str) -> None:
            server = first_server(ground)
            found["replies"].append(told(when, ask(ground, server), server))
            found["replies"].append(told(when, ask(ground, server, with_contexts=False), server))
            print(json.dumps(found["replies"][-2:], indent=1), flush=True)
            options.output.write_text(json.dumps(found, indent=1) + "\n")

        record("before the first client")
        talk, rng = ground.warm_launcher(), random.Random(2)
        ways.cell(ground, talk, rng)
        record("with one client")
        ways.end(talk)
        retire(ground, talk)
        record("after the last client has left")
        found["without_neighbours"] = side_by_side(ground, first_server(ground), options.seconds / 2)
        ground.add_neighbours(("matmul", "small"))
        record("with two clients")
        found["beside_neighbours"] = side_by_side(ground, first_server(ground), options.seconds / 2)
        options.output.write_text(json.dumps(found, indent=1) + "\n")
        print(json.dumps([found["without_neighbours"], found["beside_neighbours"]], indent=1)[:6000], flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
