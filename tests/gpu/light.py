"""Light MPS clients: a context and a little memory each, by libcuda alone, and never a kernel in flight.

usage: light.py NUMBER [WORD…]   (0: this process itself; the words are only for its command line)

Prints `ready PID` or `failed PID CODE` a client. Each leaves at end-of-file on stdin. With LIGHT_REHEARSAL set it
attaches to a rehearsal stack instead.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys

MEMORY = 32 << 20


def context() -> int:
    """Make a context as the driver does for any CUDA program; the driver's code, 0 for success."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, made, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    return (
        cuda.cuInit(0)
        or cuda.cuDeviceGet(ctypes.byref(device), 0)
        or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(made), device)
        or cuda.cuCtxSetCurrent(made)
        or cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(MEMORY))
    )


def rehearsed() -> tuple[int, socket.socket]:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ["CUDA_MPS_PIPE_DIRECTORY"] + "/rehearsal")
    connection.sendall(b'{"attach": {"cap": "100"}}\n')
    return (0 if connection.recv(4096).startswith(b'{"attached"') else 808), connection


def serve() -> None:
    kept = None
    if os.environ.get("LIGHT_REHEARSAL"):
        code, kept = rehearsed()
    else:
        code = context()
    os.write(1, f"{'failed' if code else 'ready'} {os.getpid()}{f' {code}' if code else ''}\n".encode())
    while not code and os.read(0, 4096):
        pass
    del kept
    os._exit(0)


def main() -> None:
    number = int(sys.argv[1])
    if number == 0:
        serve()
    for _ in range(number):
        if os.fork() == 0:
            serve()
    for _ in range(number):
        os.wait()


if __name__ == "__main__":
    main()
