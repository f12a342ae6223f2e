"""Light services for the GPU tests: one import of torch, many forked processes that each keep a context.

usage: services.py NUMBER PERIOD_SECONDS   (0: a context only, no further work)

Prints `ready PID` for each process once its context is made. Each leaves, drained, at end-of-file on stdin; every
PERIOD it computes one small product, synchronises, and checks the result, so that a fault is noticed: it prints
`dead PID WHY` then.
"""

from __future__ import annotations

import os
import select
import sys


def serve(torch: object, period: float, lifeline: int) -> None:
    left = torch.randn(1024, 1024, device="cuda", dtype=torch.float16)  # type: ignore[attr-defined]
    torch.cuda.synchronize()  # type: ignore[attr-defined]
    os.write(1, f"ready {os.getpid()}\n".encode())
    while not select.select([lifeline], [], [], period or None)[0]:
        total = float((left @ left).float().abs().sum())
        torch.cuda.synchronize()  # type: ignore[attr-defined]
        if not total > 0:
            raise RuntimeError(f"the product is {total}")


def main() -> None:
    number, period = int(sys.argv[1]), float(sys.argv[2])
    import torch

    lifeline, held = os.pipe()
    for _ in range(number):
        if os.fork() == 0:
            os.close(held)
            try:
                serve(torch, period, lifeline)
                os._exit(0)
            except BaseException as fault:  # noqa: BLE001 # whatever ends a service is what we are here to report
                os.write(1, f"dead {os.getpid()} {str(fault).splitlines()[0]}\n".encode())
                os._exit(1)
    os.close(lifeline)
    while os.read(0, 4096):
        pass
    os.close(held)
    for _ in range(number):
        os.wait()


if __name__ == "__main__":
    main()
