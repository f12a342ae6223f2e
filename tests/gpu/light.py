"""Light MPS clients: a context and a little memory each, by libcuda alone, and never a kernel in flight.

usage: light.py NUMBER [WORD…]   (0: this process itself; the words are only for its command line)

Prints `ready PID UUID,…` or `failed PID CODE` a client. Each leaves at end-of-file on stdin. LIGHT_DEVICES are the
devices that it takes, as CUDA numbers them here (0). With LIGHT_REHEARSAL set it attaches to a rehearsal stack instead.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import uuid

MEMORY = 32 << 20


def contexts(devices: list[int]) -> tuple[int, list[str]]:
    """Make a context on each, as the driver does for any CUDA program; the driver's code, 0 for success, and uuids."""
    cuda = ctypes.CDLL("libcuda.so.1")
    code, uuids = cuda.cuInit(0), []
    for number in devices:
        device, made, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        name = ctypes.create_string_buffer(16)
        code = (
            code
            or cuda.cuDeviceGet(ctypes.byref(device), number)
            or cuda.cuDeviceGetUuid(name, device)
            or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(made), device)
            or cuda.cuCtxSetCurrent(made)
            or cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(MEMORY))
        )
        uuids.append(f"GPU-{uuid.UUID(bytes=name.raw)}")
    return code, uuids


def rehearsed() -> tuple[int, list[str], socket.socket]:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ["CUDA_MPS_PIPE_DIRECTORY"] + "/rehearsal")
    connection.sendall(b'{"attach": {"cap": "100"}}\n')
    attached = json.loads(connection.recv(4096) or b"{}").get("attached")
    return (0, [attached["device_uuid"]], connection) if attached else (808, [], connection)


def serve() -> None:
    kept = None
    if os.environ.get("LIGHT_REHEARSAL"):
        code, uuids, kept = rehearsed()
    else:
        code, uuids = contexts([int(word) for word in os.environ.get("LIGHT_DEVICES", "0").split(",")])
    os.write(1, f"{'failed' if code else 'ready'} {os.getpid()} {code or ','.join(uuids)}\n".encode())
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
