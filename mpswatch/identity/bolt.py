"""One bucket of a bbolt database as it stands in the file: containerd keeps labels in one, and nowhere else.

The database is not opened, and above all not locked: containerd takes the lock when it starts, and would hang on ours.
bbolt never overwrites a page that its newest committed transaction can reach, so a reader that finds the same
transaction before and after has read that one. One that was overtaken reads again. Only the few pages on the way to
the bucket are read. Source: bbolt's page, meta and bucket structures (file format version 2, little-endian).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ATTEMPTS = 8
"""How often a reader that was overtaken begins again."""

_MAGIC, _VERSION = 0xED0CDAED, 2
_META = struct.Struct("<IIII QQ QQQ")  # magic, version, page size, flags; root page, sequence; freelist, end, number
_CHECKSUM = struct.Struct("<Q")
_PAGE = struct.Struct("<Q HHI")  # id, flags, elements, further pages
_LEAF = struct.Struct("<IIII")  # flags, position, length of the key, of the value
_BRANCH = struct.Struct("<IIQ")  # position, length of the key, page
_IS_BRANCH, _IS_LEAF = 0x01, 0x02
_IS_BUCKET = 0x01
_BUCKET_HEADER = 16
_PAGE_SIZES = (4096, 16384, 65536)
"""The operating system's, where the database was made."""
_MOST_PAGES, _MOST_BYTES = 256, 8 << 20


class BoltError(ValueError):
    """Not a bbolt database, or one that changes too quickly to be read."""


@dataclass(frozen=True, slots=True)
class _Meta:
    """One committed transaction."""

    page_size: int
    root: int
    transaction: int


def bucket(path: Path, *names: bytes) -> dict[bytes, bytes] | None:
    """The keys and values, buckets left out, of the bucket below `names`; None where there is none.

    Raises `OSError` where the file cannot be read, `BoltError` where it is not what it should be.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        for _ in range(ATTEMPTS):
            before = _newest(descriptor)
            found: dict[bytes, bytes] | None = None
            fault: Exception | None = None
            try:
                found = _Reader(descriptor, before).bucket(names)
            except (BoltError, struct.error) as error:
                fault = error  # perhaps because it was overtaken
            if _newest(descriptor) == before:
                if fault is not None:
                    raise BoltError(f"{path}: {fault}") from fault
                return found
    finally:
        os.close(descriptor)
    raise BoltError(f"{path} changes too quickly")


def _newest(descriptor: int) -> _Meta:
    """The newest committed transaction. There are two places, written in turn: one may be half written just now."""
    found = [meta for place in (0, *_PAGE_SIZES) if (meta := _meta(descriptor, place)) is not None]
    if not found:
        raise BoltError("this is no bbolt database")
    return max(found, key=lambda meta: meta.transaction)


def _meta(descriptor: int, place: int) -> _Meta | None:
    data = os.pread(descriptor, _META.size + _CHECKSUM.size, place + _PAGE.size)
    if len(data) < _META.size + _CHECKSUM.size:
        return None
    magic, version, page_size, _, root, _, _, _, transaction = _META.unpack_from(data)
    if (magic, version) != (_MAGIC, _VERSION) or page_size not in _PAGE_SIZES or place not in {0, page_size}:
        return None
    if _CHECKSUM.unpack_from(data, _META.size)[0] != _fnv(data[: _META.size]):
        return None
    return _Meta(page_size, root, transaction)


def _fnv(data: bytes) -> int:
    """FNV-1a of 64 bits."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


class _Reader:
    """Reads pages of one transaction, up to a bound: a file that is not what it should be costs no more."""

    def __init__(self, descriptor: int, meta: _Meta) -> None:
        self._descriptor = descriptor
        self._meta = meta
        self._left = _MOST_PAGES

    def bucket(self, names: tuple[bytes, ...]) -> dict[bytes, bytes] | None:
        page = self._page(self._meta.root)
        for name in names:
            value = self._find(page, name)
            if value is None:
                return None
            (root,) = struct.unpack_from("<Q", value)
            page = self._page(root) if root else value[_BUCKET_HEADER:]  # a small bucket lies within its value
        return {key: value for flags, key, value in self._all(page) if not flags & _IS_BUCKET}

    def _page(self, number: int) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise BoltError("it has too many pages on the way")
        size = self._meta.page_size
        data = os.pread(self._descriptor, size, number * size)
        found, _, _, further = _PAGE.unpack_from(data)
        if found != number or further * size > _MOST_BYTES:
            raise BoltError(f"page {number} is not what it should be")
        return data + os.pread(self._descriptor, further * size, (number + 1) * size) if further else data

    def _find(self, page: bytes, name: bytes) -> bytes | None:
        """The value of the bucket `name` in the tree below `page`."""
        while not _is_leaf(page):
            below = None
            for key, number in _branches(page):
                if below is not None and key > name:
                    break
                below = number
            if below is None:
                raise BoltError("a branch has no leaves")
            page = self._page(below)
        return next((value for flags, key, value in _leaves(page) if key == name and flags & _IS_BUCKET), None)

    def _all(self, page: bytes) -> Iterator[tuple[int, bytes, bytes]]:
        if _is_leaf(page):
            yield from _leaves(page)
            return
        for _, number in _branches(page):
            yield from self._all(self._page(number))


def _is_leaf(page: bytes) -> bool:
    flags = _PAGE.unpack_from(page)[1]
    if flags not in {_IS_BRANCH, _IS_LEAF}:
        raise BoltError("a page is neither branch nor leaf")
    return bool(flags == _IS_LEAF)


def _leaves(page: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Flags, key and value of each element; the position counts from the element's own beginning."""
    for place in _elements(page):
        flags, position, key, value = _LEAF.unpack_from(page, place)
        start = place + position
        yield flags, _cut(page, start, key), _cut(page, start + key, value)


def _branches(page: bytes) -> Iterator[tuple[bytes, int]]:
    for place in _elements(page):
        position, length, number = _BRANCH.unpack_from(page, place)
        yield _cut(page, place + position, length), number


def _elements(page: bytes) -> range:
    count = _PAGE.unpack_from(page)[2]
    return range(_PAGE.size, _PAGE.size + count * _LEAF.size, _LEAF.size)


def _cut(page: bytes, start: int, length: int) -> bytes:
    found = page[start : start + length]
    if len(found) != length:
        raise BoltError("an element goes beyond its page")
    return found
