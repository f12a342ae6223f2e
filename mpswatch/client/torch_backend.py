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

FILL_STEP = 1 << 22
"""Elements filled at once: under a millisecond even on few SMs."""


class TorchDevice(Device):
    small = 512

    def __init__(self, size: int, dtype: str) -> None:
        kind = getattr(torch, DTYPES[dtype])
        # flat, so that a smaller square is a contiguous piece of the same memory
        self._flat = [torch.empty(size * size, dtype=kind, device="cuda") for _ in range(3)]
        self._squares: dict[int, list[Any]] = {}
        self._starts = [torch.cuda.Event(enable_timing=True) for _ in range(SLOTS)]
        self._ends = [torch.cuda.Event(enable_timing=True) for _ in range(SLOTS)]
        for event in self._starts + self._ends:
            event.record()  # an event comes into being when it is first recorded
        torch.cuda.current_blas_handle()  # makes cuBLAS take its workspace
        self._generator = torch.Generator(device="cuda")
        self.drain()

    def enqueue(self, slot: int, count: int, size: int) -> None:
        a, b, c = self._square(size)
        self._starts[slot].record()
        for _ in range(count):
            torch.mm(a, b, out=c)
        self._ends[slot].record()

    def _square(self, size: int) -> list[Any]:
        if size not in self._squares:
            self._squares[size] = [flat[: size * size].view(size, size) for flat in self._flat]
        return self._squares[size]

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
        return TorchDevice(cell.size, cell.dtype)

    def dtype(self, cell: Cell) -> str:
        return cell.dtype

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
