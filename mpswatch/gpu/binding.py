"""The driver's libnvidia-ml.so.1 through ctypes: the twenty functions that are asked, of the thousand that it has.

nvidia-ml-py binds them all: 3 MiB resident and a fifteenth of the daemon's start. Numbers and layouts: nvml.h.
"""

from __future__ import annotations

import ctypes
import functools

LIBRARY = "libnvidia-ml"

SUCCESS = 0
NOT_SUPPORTED = 3
NO_PERMISSION = 4
INSUFFICIENT_SIZE = 7
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
OPERATING_SYSTEM = 17
LIB_RM_VERSION_MISMATCH = 18
NO_DATA = 21
ARGUMENT_VERSION_MISMATCH = 25
DEPRECATED = 26
GPU_NOT_FOUND = 28

NOT_AVAILABLE = frozenset({2**32 - 1, 2**64 - 1})
"""What stands in an unsigned number (NVML_VALUE_NOT_AVAILABLE) for "not available"."""


class ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_t, versions 2 and 3 of the lists."""

    pid: int
    used_memory: int
    gpu_instance: int
    compute_instance: int
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used_memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Memory(ctypes.Structure):
    """nvmlMemory_t: bytes."""

    total: int
    free: int
    used: int
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class MemoryV2(ctypes.Structure):
    """nvmlMemory_v2_t: bytes. `version` holds the structure's size and number, and is checked by the library."""

    version: int
    total: int
    reserved: int
    free: int
    used: int
    _fields_ = (
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class Utilization(ctypes.Structure):
    """nvmlUtilization_t: percent of the last sample period."""

    gpu: int
    memory: int
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class NvmlError(Exception):
    """A function that did not succeed; `code` is what it returned (nvmlReturn_t)."""

    def __init__(self, code: int, function: str, text: str) -> None:
        self.code = code
        super().__init__(f"{text} ({function}: {code})")


def call(function: str, *arguments: object) -> None:
    """Call a function of the library, which is loaded with the first; raises `NvmlError`.

    The interpreter's lock is given up meanwhile. No two threads at a time: that is the caller's to hold.
    """
    library = _library()
    try:
        code = getattr(library, function)(*arguments)
    except AttributeError:
        raise NvmlError(FUNCTION_NOT_FOUND, function, "this version of the library has no such function") from None
    if code != SUCCESS:
        raise NvmlError(code, function, _text(library, code))


def number(function: str, *arguments: object, room: type[ctypes.c_uint | ctypes.c_ulonglong] = ctypes.c_uint) -> int:
    """What a function writes into its last argument."""
    found = room()
    call(function, *arguments, ctypes.byref(found))
    value: int = found.value
    return value


def text(function: str, *arguments: object, size: int = 96) -> bytes:
    """What a function writes into a buffer of `size` bytes, up to its end: not always UTF-8."""
    buffer = ctypes.create_string_buffer(size)
    call(function, *arguments, buffer, ctypes.c_uint(size))
    return buffer.value


@functools.cache
def _library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(f"{LIBRARY}.so.1")
    except OSError as error:
        raise NvmlError(LIBRARY_NOT_FOUND, LIBRARY, str(error)) from None  # not cached: it may be installed later


def _text(library: ctypes.CDLL, code: int) -> str:
    try:
        explain = library.nvmlErrorString
    except AttributeError:
        return "an error"
    explain.restype = ctypes.c_char_p
    said: bytes | None = explain(code)
    return (said or b"an error").decode("utf-8", "replace")
