"""Matmuls on a GPU through torch. Importing this imports torch, and must not start CUDA: a child's fork comes after.

In the launcher nothing here touches `torch.cuda` (is_available and device_count can start the driver, and then the
launcher would be a client of the stack itself).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .backend import Backend, Cell
from .pieces import SLOTS, Device

DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}

ITEM_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4}

FILL_STEP = 1 << 22
"""Elements filled at once: under a millisecond even on few SMs."""


STREAM_FACTOR = 8
"""A stream runs over this many times size^2 elements: 256 MiB of fp16 for 4096, several times an L2 cache."""

LAUNCH_ELEMENTS = 1024


class TorchDevice(Device):
    """Events and order; what is computed is a subclass's. All memory is taken in its making."""

    def __init__(self, elements: int, buffers: int, dtype: str) -> None:
        kind = getattr(torch, DTYPES[dtype])
        # flat, so that a smaller problem is a contiguous piece of the same memory
        self._flat = [torch.empty(elements, dtype=kind, device="cuda") for _ in range(buffers)]
        self._views: dict[int, list[Any]] = {}
        self._starts = [torch.cuda.Event(enable_timing=True) for _ in range(SLOTS)]
        self._ends = [torch.cuda.Event(enable_timing=True) for _ in range(SLOTS)]
        for event in self._starts + self._ends:
            event.record()  # an event comes into being when it is first recorded
        self._generator = torch.Generator(device="cuda")
        self.prepare()
        self.drain()

    def prepare(self) -> None:
        """Take what else the work needs."""

    def launch(self, count: int, size: int) -> None:
        """Queue `count` kernels."""
        raise NotImplementedError

    def view(self, size: int) -> list[Any]:
        """The buffers as a kernel of `size` sees them."""
        raise NotImplementedError

    def views(self, size: int) -> list[Any]:
        if size not in self._views:
            self._views[size] = self.view(size)
        return self._views[size]

    def enqueue(self, slot: int, count: int, size: int) -> None:
        self._starts[slot].record()
        self.launch(count, size)
        self._ends[slot].record()

    def wait(self, slot: int) -> None:
        self._ends[slot].synchronize()

    def between(self, first: int, last: int) -> float:
        return float(self._starts[first].elapsed_time(self._ends[last])) / 1000

    def gap(self, before: int, after: int) -> float:
        return float(self._ends[before].elapsed_time(self._starts[after])) / 1000

    def fill(self, seed: int) -> Iterator[None]:
        self._generator.manual_seed(seed)
        for flat in self._flat[:2]:
            for begin in range(0, flat.numel(), FILL_STEP):
                flat[begin : begin + FILL_STEP].normal_(generator=self._generator)
                yield

    def drain(self) -> None:
        torch.cuda.synchronize()


class Matmul(TorchDevice):
    small = 512

    def prepare(self) -> None:
        torch.cuda.current_blas_handle()  # makes cuBLAS take its workspace

    def view(self, size: int) -> list[Any]:
        return [flat[: size * size].view(size, size) for flat in self._flat]

    def launch(self, count: int, size: int) -> None:
        a, b, c = self.views(size)
        for _ in range(count):
            torch.mm(a, b, out=c)


class Stream(TorchDevice):
    """Reads all of one buffer and writes all of another."""

    small = 512
    exponent = 2

    def view(self, size: int) -> list[Any]:
        return [flat[: STREAM_FACTOR * size * size] for flat in self._flat]

    def launch(self, count: int, size: int) -> None:
        a, b = self.views(size)
        for _ in range(count):
            torch.mul(a, 2.0, out=b)


class Launches(TorchDevice):
    """Kernels so small that launching one is what takes the time."""

    exponent = 0
    piece_most = 400

    def view(self, size: int) -> list[Any]:  # noqa: ARG002 -- it has one size
        return self._flat

    def launch(self, count: int, size: int) -> None:
        a, b = self.views(size)
        for _ in range(count):
            torch.add(a, 1.0, out=b)


class TorchBackend(Backend):
    clock = "cuda_event"

    def versions(self) -> dict[str, Any]:
        return {"torch": str(torch.__version__), "cuda": torch.version.cuda}

    def attach(self, cell: Cell, pipe_directory_fd: int) -> dict[str, Any]:  # noqa: ARG002 -- the driver finds it itself
        torch.set_grad_enabled(False)
        torch.cuda.init()
        torch.cuda.synchronize()  # makes the context; the properties read after it are those of a capped client
        properties = torch.cuda.get_device_properties(0)
        uuid = getattr(properties, "uuid", None)  # since torch 2.4
        return {
            "sm_count": int(properties.multi_processor_count),
            "device_uuid": None if uuid is None else _prefixed(str(uuid)),
            "device_name": str(properties.name),
        }

    def allocate(self, cell: Cell) -> Device:
        if cell.kind == "stream":
            return Stream(STREAM_FACTOR * cell.size * cell.size, 2, cell.dtype)
        if cell.kind == "launch":
            return Launches(LAUNCH_ELEMENTS, 2, cell.dtype)
        return Matmul(cell.size * cell.size, 3, cell.dtype)

    def dtype(self, cell: Cell) -> str:
        return cell.dtype

    def bytes_each(self, cell: Cell) -> int | None:
        if cell.kind != "stream":
            return None
        return 2 * STREAM_FACTOR * cell.size * cell.size * ITEM_BYTES[cell.dtype]

    def input_values(self, cell: Cell) -> str:
        return f"normal(0, 1), torch generator on the device, seed {cell.seed}"

    def exhaust(self) -> None:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")

    def reason_of(self, error: BaseException) -> str | None:
        text = str(error)
        if isinstance(error, torch.cuda.OutOfMemoryError) or "out of memory" in text:
            return "out_of_memory"
        if "have been exhausted" in text:  # cudaErrorMpsMaxClientsReached (808) and MaxConnectionsReached (809)
            return "server_full"
        if "MPS" in text or "NVIDIA driver" in text or "CUDA-capable" in text or "not compiled with CUDA" in text:
            return "cuda_unavailable"
        return None


def _prefixed(uuid: str) -> str:
    return uuid if uuid.startswith(("GPU-", "MIG-")) else "GPU-" + uuid


BACKEND = TorchBackend
