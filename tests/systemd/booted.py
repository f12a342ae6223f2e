"""Runs inside the booted container: ends the unit in every way, in the middle of a cell, and writes down what came.

Arguments: the stack's directory, the file for the results. One JSON object a way: whether work was in flight, how long
the client lived on, whom it harmed, and what became of the unit.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

UNIT = "mpswatch.service"


def systemctl(*arguments: str) -> str:
    return subprocess.run(["systemctl", *arguments], check=False, capture_output=True, text=True).stdout.strip()


def shown(name: str) -> str:
    return systemctl("show", UNIT, "-P", name)


def main_pid() -> int:
    return int(shown("MainPID"))


def status(stack: Path) -> dict[str, Any]:
    told = subprocess.run(
        [sys.executable, "-m", "mpswatch.rehearsal", "status", str(stack)], check=True, capture_output=True, text=True
    )
    return json.loads(told.stdout)["daemons"]["default"]


def wait_for(what: Callable[[], Any], seconds: float, name: str) -> Any:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise TimeoutError(f"{name}: not within {seconds} s")


def measuring(stack: Path) -> dict[str, Any] | None:
    """Our client, once it is well into its cell."""
    server = status(stack)["server"] or {"clients": []}
    clients = [client for client in server["clients"] if not client["service"] and client["pieces"] > 20]
    return clients[0] if clients else None


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def stop() -> None:
    systemctl("stop", UNIT)


def restart() -> None:
    systemctl("restart", UNIT)


def freeze() -> None:
    """What a loop that hangs looks like from outside: the watchdog is not fed any more."""
    os.kill(main_pid(), signal.SIGSTOP)


def kill_main() -> None:
    os.kill(main_pid(), signal.SIGKILL)


def kill_unit() -> None:
    systemctl("kill", UNIT)


def kill_unit_dead() -> None:
    """Not to be survived, and named so: the control of this test."""
    systemctl("kill", "-s", "KILL", UNIT)


WAYS = [stop, restart, kill_main, kill_unit, freeze, kill_unit_dead]


def trial(way: Callable[[], None], stack: Path) -> dict[str, Any]:
    systemctl("reset-failed", UNIT)
    systemctl("start", UNIT)
    wait_for(lambda: shown("ActiveState") == "active", 20, "the unit's start")
    restarts = int(shown("NRestarts"))
    wait_for(lambda: signalled_sweep(stack), 30, "a sweep in mid-cell")
    client = measuring(stack)
    if client is None:
        return {"way": way.__name__, "error": "the cell was over already"}
    before, began, daemon = status(stack), time.monotonic(), main_pid()
    way()
    result = shown("Result")
    wait_for(lambda: gone(client["pid"]), 30, "the client's end")
    outlived = time.monotonic() - began
    wait_for(lambda: gone(daemon), 30, "the daemon's end")
    wait_for(lambda: not status(stack)["attached_clients"], 10, "the list without the client")
    time.sleep(0.3)
    after = status(stack)
    wait_for(lambda: shown("ActiveState") in {"active", "inactive", "failed"}, 20, "the unit at rest")
    return {
        "way": way.__name__,
        "pieces": client["pieces"],
        "cap": client["cap"],
        "client_outlived_by": round(outlived, 3),
        "unsafe_ends": len(after["unsafe_ends"]) - len(before["unsafe_ends"]),
        "harmed_neighbours": len(after["harmed_neighbours"]) - len(before["harmed_neighbours"]),
        "services": sum(client["service"] for client in (after["server"] or {"clients": []})["clients"]),
        "state": shown("ActiveState"),
        "result": result,
        "restarts": int(shown("NRestarts")) - restarts,
    }


def signalled_sweep(stack: Path) -> bool:
    """Ask for a sweep now (SIGUSR1 to the daemon alone) until one is in the middle of a cell."""
    if not status(stack)["attached_clients"] and measuring(stack) is None:
        systemctl("kill", "-s", "USR1", "--kill-whom=main", UNIT)
        time.sleep(0.5)
    return measuring(stack) is not None


def main(stack: Path, results: Path) -> None:
    with results.open("w") as file:
        for way in WAYS:
            try:
                outcome = trial(way, stack)
            except Exception as error:  # noqa: BLE001 - the test reads it
                outcome = {"way": way.__name__, "error": f"{type(error).__name__}: {error}"}
            file.write(json.dumps(outcome) + "\n")
            file.flush()
            if "error" in outcome:
                return


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
