"""Gives back the pages that the driver's library has filled with zeros: 13 of the 18 MiB that opening it costs.

nvmlInit writes zeros over tables for devices that are not there (in .bss: memory that is zeros without being written,
and takes none), and what was written is resident from then on. A page of zeros can be given back: whoever reads it next
finds zeros again. On an H200 with driver 580, 3,375 of 3,487 written pages; none came back in later looks, and nothing
was answered differently (docs/measurements/memory-2026-11-30.md).

The condition: nobody writes into a page between the look at it and its return. The library has no thread of its own;
the caller keeps others out of it; and only its .bss is looked at, by the bounds in its header, whatever else the kernel
shows as one mapping with that.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

_PAGE = mmap.PAGESIZE
_ELF64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
_LOADED, _WRITABLE = 1, 2  # elf.h: PT_LOAD, PF_W


def give_back_zeros(library: str) -> int:
    """Give back what is only zeros in the .bss of `library`, its file's name without the version; how many bytes.

    To be called while nothing runs inside of it. 0 where it is not loaded, or /proc or the C library are others.
    """
    try:
        madvise = ctypes.PyDLL(None).madvise  # keeps the interpreter's lock from the look to the return
        base = _base(library)
    except (OSError, AttributeError):
        return 0
    if base is None:
        return 0
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    zeros, given = bytes(_PAGE), 0
    for start, end in _bss(base):
        for page in range(start, end, _PAGE):
            if ctypes.string_at(page, _PAGE) == zeros and madvise(page, _PAGE, mmap.MADV_DONTNEED) == 0:
                given += _PAGE
    return given


def _base(library: str) -> int | None:
    """Where the beginning of the library's file is mapped."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        # 7f32a0400000-7f32a0419000 r--p 00000000 08:01 1234 /usr/lib/…/libnvidia-ml.so.580.159.04
        words = line.split(None, 5)
        if len(words) == 6 and int(words[2], 16) == 0 and Path(words[5]).name.startswith(f"{library}.so"):
            return int(words[0].partition("-")[0], 16)
    return None


def _bss(base: int) -> Iterator[tuple[int, int]]:
    """The whole pages that a loaded library has beyond its file, from the program headers at its beginning (elf.h)."""
    header = ctypes.string_at(base, 64)
    if header[:6] != _ELF64_LITTLE_ENDIAN:
        return
    offset, size, count = *struct.unpack_from("<Q", header, 32), *struct.unpack_from("<HH", header, 54)
    for number in range(count):
        entry = ctypes.string_at(base + offset + number * size, 56)
        kind, flags, _, address, _, in_file, in_memory, _ = struct.unpack("<IIQQQQQQ", entry)
        if kind == _LOADED and flags & _WRITABLE:
            start, end = base + address + in_file, base + address + in_memory
            yield -(-start // _PAGE) * _PAGE, end // _PAGE * _PAGE
