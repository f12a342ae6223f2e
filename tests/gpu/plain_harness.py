"""The harness that mpswatch is compared with: a fresh interpreter for each cap, which ends in the ordinary drained way.

usage: plain_harness.py CAPS SIZE ITERS     (CUDA_MPS_PIPE_DIRECTORY in the environment)

The same protocol as plan `quick`: 3 warm-up products, ITERS measured ones between two events, 20 samples. It asks the
control daemon for its client list before and after each cell, as the harness did that mpswatch replaces. Prints one
JSON object: seconds in all, and by cap the seconds of import, context, warm-up and measurement.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

CELL = """
import json, sys, time
began = time.monotonic()
import torch
imported = time.monotonic()
size, iters = int(sys.argv[1]), int(sys.argv[2])
torch.set_grad_enabled(False)
torch.cuda.init()
torch.cuda.synchronize()
context = time.monotonic()
a = torch.randn(size, size, dtype=torch.float16, device="cuda")
b = torch.randn(size, size, dtype=torch.float16, device="cuda")
for _ in range(3):
    c = torch.mm(a, b)
torch.cuda.synchronize()
warm = time.monotonic()
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
for _ in range(iters):
    c = torch.mm(a, b)
end.record()
torch.cuda.synchronize()
seconds = start.elapsed_time(end) / 1000
for _ in range(20):
    start.record()
    c = torch.mm(a, b)
    end.record()
    end.synchronize()
done = time.monotonic()
print(json.dumps({
    "tflops": round(2 * size**3 * iters / seconds / 1e12, 1), "import": round(imported - began, 3),
    "context": round(context - imported, 3), "warm_up": round(warm - context, 3), "measure": round(done - warm, 3),
}))
"""


def clients() -> None:
    """As the harness did: the server, then its clients, one connection each."""
    listed = subprocess.run(
        ["nvidia-cuda-mps-control"], input=b"get_server_list\n", capture_output=True, timeout=20, check=False
    ).stdout.split()
    for server in listed[:1]:
        command = b"get_client_list " + server + b"\n"
        subprocess.run(["nvidia-cuda-mps-control"], input=command, capture_output=True, timeout=20, check=False)


def main() -> None:
    caps, size, iters = sys.argv[1].split(","), sys.argv[2], sys.argv[3]
    began = time.monotonic()
    cells = {}
    for cap in caps:
        started = time.monotonic()
        clients()
        answer = subprocess.run(
            [sys.executable, "-c", CELL, size, iters],
            env={**os.environ, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": cap},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        clients()
        said = answer.stdout.strip().splitlines()
        cells[cap] = json.loads(said[-1]) if answer.returncode == 0 and said else {"error": answer.stderr[-600:]}
        cells[cap]["total"] = round(time.monotonic() - started, 3)
    print(json.dumps({"seconds": round(time.monotonic() - began, 3), "cells": cells}))


if __name__ == "__main__":
    main()
