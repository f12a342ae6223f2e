"""Keeps the daemon small: what a start or a sweep has used up and freed goes back to the system."""

from __future__ import annotations

import contextlib
import ctypes
import gc

_M_ARENA_MAX = -8
_M_MMAP_THRESHOLD = -3
_M_TRIM_THRESHOLD = -1

GIVE_BACK_SECONDS = 60.0
"""How often free pages go back, whatever has used them."""


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
    """Once all that stays is loaded: free pages go back, and the collector need not look through it again."""
    give_back()
    gc.freeze()


def give_back() -> None:
    """Give free pages back to the system: about 2 ms. After a start, a sweep, a crowd of requests."""
    gc.collect()  # connections that are over stand in cycles; what `settle` froze is not looked through
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
