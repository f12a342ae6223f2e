"""Matmuls on the CPU, for the rehearsal stack: the same client, with a socket in place of the driver.

The socket `rehearsal` in the pipe directory says how many SMs this client would see, and which share of the time it
may compute. `+` and `-` on it say that work went in flight and ended, so that the stack can do what a real server
does when a client vanishes with work in flight.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy import random  # imported lazily otherwise: in the middle of a cell

from .backend import Backend, Cell, Refused
from .pieces import SLOTS, Device

MPS_MAX_CLIENTS_REACHED = 808
REPLY_LIMIT = 4096


STREAM_FACTOR = 8
"""A stream runs over this many times size^2 elements."""

LAUNCH_ELEMENTS = 64


class NumpyDevice(Device):
    """Runs a queued piece when it is waited for, as if it had run from the moment it could."""

    small = 64

    def __init__(self, elements: int, buffers: int, share: float, connection: socket.socket) -> None:
        self._flat = [np.zeros(elements, dtype=np.float32) for _ in range(buffers)]
        self._idle_ratio = 1 / share - 1
        self._connection = connection
        self._queued: list[tuple[int, int, int]] = []
        self._filling = False
        self._started = [0.0] * SLOTS
        self._ended = [0.0] * SLOTS
        self._last_end = 0.0

    def enqueue(self, slot: int, count: int, size: int) -> None:
        self._connection.sendall(b"+")
        self._queued.append((slot, count, size))
        self._started[slot] = time.perf_counter()

    def wait(self, slot: int) -> None:
        while any(queued == slot for queued, _, _ in self._queued):
            self._run_oldest()

    def _run_oldest(self) -> None:
        slot, count, size = self._queued[0]
        self._started[slot] = max(self._started[slot], self._last_end)
        begin = time.perf_counter()
        self.compute(count, size)
        time.sleep((time.perf_counter() - begin) * self._idle_ratio)
        self._ended[slot] = self._last_end = time.perf_counter()
        self._queued.pop(0)
        self._connection.sendall(b"-")

    def compute(self, count: int, size: int) -> None:
        """Run `count` kernels: a square matmul here."""
        a, b, c = (flat[: size * size].reshape(size, size) for flat in self._flat)
        for _ in range(count):
            np.matmul(a, b, out=c)

    def between(self, first: int, last: int) -> float:
        return self._ended[last] - self._started[first]

    def gap(self, before: int, after: int) -> float:
        return self._started[after] - self._ended[before]

    def fill(self, seed: int) -> Iterator[None]:
        generator = random.default_rng(seed)
        for flat in self._flat[:2]:
            self._connection.sendall(b"+")
            self._filling = True
            generator.standard_normal(out=flat, dtype=np.float32)
            yield

    def drain(self) -> None:
        if self._filling:
            self._filling = False
            self._connection.sendall(b"-")
        while self._queued:
            self._run_oldest()


class Stream(NumpyDevice):
    exponent = 2

    def compute(self, count: int, size: int) -> None:
        a, b = (flat[: STREAM_FACTOR * size * size] for flat in self._flat)
        for _ in range(count):
            np.multiply(a, np.float32(2), out=b)


class Launches(NumpyDevice):
    exponent = 0
    piece_most = 400

    def compute(self, count: int, size: int) -> None:  # noqa: ARG002 -- it has one size
        a, b = self._flat
        for _ in range(count):
            np.add(a, np.float32(1), out=b)


class NumpyBackend(Backend):
    clock = "perf_counter"

    def __init__(self) -> None:
        self._share = 1.0
        self._connection: socket.socket | None = None

    def versions(self) -> dict[str, Any]:
        return {"numpy": np.__version__}

    def attach(self, cell: Cell, pipe_directory_fd: int) -> dict[str, Any]:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # by way of the open directory: a socket's own path may have 107 bytes only
        connection.connect(f"/proc/self/fd/{pipe_directory_fd}/rehearsal")
        connection.sendall(json.dumps({"attach": {"cap": cell.cap}}).encode() + b"\n")
        reply = b""
        while not reply.endswith(b"\n"):
            chunk = connection.recv(REPLY_LIMIT)
            if not chunk or len(reply) > REPLY_LIMIT:
                raise Refused("cuda_unavailable", "the rehearsal's server hung up")
            reply += chunk
        message = json.loads(reply)
        if "attached" not in message:
            refused = message.get("refused", {})
            full = refused.get("code") == MPS_MAX_CLIENTS_REACHED
            raise Refused("server_full" if full else "cuda_unavailable", json.dumps(refused))
        attached = message["attached"]
        self._share = min(1.0, max(0.001, float(attached["share"])))
        self._connection = connection
        return {name: attached.get(name) for name in ("sm_count", "device_uuid", "device_name")}

    def allocate(self, cell: Cell) -> Device:
        if self._connection is None:
            raise RuntimeError("not attached")
        if cell.kind == "stream":
            return Stream(STREAM_FACTOR * cell.size * cell.size, 2, self._share, self._connection)
        if cell.kind == "launch":
            return Launches(LAUNCH_ELEMENTS, 2, self._share, self._connection)
        return NumpyDevice(cell.size * cell.size, 3, self._share, self._connection)

    def dtype(self, cell: Cell) -> str:  # noqa: ARG002 -- whatever was asked for
        return "float32"

    def bytes_each(self, cell: Cell) -> int | None:
        return 2 * STREAM_FACTOR * cell.size * cell.size * 4 if cell.kind == "stream" else None

    def input_values(self, cell: Cell) -> str:
        return f"normal(0, 1), numpy default_rng, seed {cell.seed}"

    def exhaust(self) -> None:
        np.empty(1 << 60, dtype=np.uint8)

    def reason_of(self, error: BaseException) -> str | None:
        return error.reason if isinstance(error, Refused) else None


BACKEND = NumpyBackend
