"""A neighbour that is never idle, and says what it got done: the cost of a sweep is what it did not.

usage: busy_neighbour.py SIZE      (CUDA_MPS_PIPE_DIRECTORY in the environment)

Prints `ready PID`, then waits. On `go` it multiplies without a pause, two products ahead of what it waits for, and
notes the time each one is done; on `stop` it drains and prints `done [[second, products], …]` in bins of 20 ms of the
monotonic clock. At end-of-file it leaves, drained. A fault ends it with `dead WHY`.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time

BIN = 0.02


def waiting() -> bool:
    return bool(select.select([0], [], [], 0)[0])


def work(torch, size: int) -> dict[int, int]:
    a = torch.randn(size, size, device="cuda", dtype=torch.float16)
    b = torch.randn(size, size, device="cuda", dtype=torch.float16)
    c = torch.empty_like(a)
    events = [torch.cuda.Event() for _ in range(2)]
    for _ in range(3):
        torch.mm(a, b, out=c)
    torch.cuda.synchronize()
    bins: dict[int, int] = {}
    number = 0
    while number % 16 or not waiting():
        if number >= 2:
            events[number % 2].synchronize()
            key = int(time.monotonic() / BIN)
            bins[key] = bins.get(key, 0) + 1
        torch.mm(a, b, out=c)
        events[number % 2].record()
        number += 1
    torch.cuda.synchronize()
    return bins


def main() -> None:
    import torch

    torch.set_grad_enabled(False)
    torch.cuda.init()
    torch.cuda.synchronize()
    print(f"ready {os.getpid()}", flush=True)
    while word := sys.stdin.readline().strip():
        if word == "go":
            bins = work(torch, int(sys.argv[1]))
        else:
            print("done", json.dumps([[round(key * BIN, 2), count] for key, count in sorted(bins.items())]), flush=True)


if __name__ == "__main__":
    try:
        main()
    except BaseException as fault:  # noqa: BLE001 # whatever ends it is what we are here to report
        print("dead", str(fault).splitlines()[:1], flush=True)
        os._exit(1)
    os._exit(0)
