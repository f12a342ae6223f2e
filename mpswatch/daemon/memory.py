"""Keeps the daemon small: what a start or a sweep has used up and freed goes back to the system."""

from __future__ import annotations

import contextlib
import ctypes
import gc

_M_ARENA_MAX = -8
_M_MMAP_THRESHOLD = -3
_M_TRIM_THRESHOLD = -1


def one_heap() -> None:
    """Let all threads share one heap, and large buffers go back at once; to be called before the first thread.

    glibc gives each new thread a heap of its own, up to eight a CPU, and keeps what is freed in it. Its threads here
    take turns anyway. Where the C library is another one nothing is changed.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, 256 << 10)
        mallopt(_M_TRIM_THRESHOLD, 256 << 10)


def settle() -> None:
    """Once all that stays is loaded: the collector need not look through it again, and free pages go back."""
    gc.collect()
    gc.freeze()
    give_back()


def give_back() -> None:
    """Give free pages back to the system: about a millisecond. After a start, a sweep, a reload."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
