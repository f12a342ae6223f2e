"""What a row of the index is: the schema, facts in and out with a checksum, keys and times as SQLite keeps them."""

from __future__ import annotations

import functools
import zlib
from datetime import UTC, datetime, timedelta

import msgspec

from mpswatch.history.facts import RunFacts, Series

FORMAT = 2
"""Raised whenever what a row holds changes: an index of another format is rebuilt."""

UNSETTLED = -1
"""Stands for a time of change that is too young to be relied upon: the file is read again at each opening."""

TABLES = """
CREATE TABLE series (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, gpu TEXT NOT NULL, daemon TEXT NOT NULL,
    plan TEXT NOT NULL);
CREATE TABLE runs (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, size INTEGER NOT NULL, changed INTEGER NOT NULL,
    run_id TEXT NOT NULL, series INTEGER REFERENCES series (id), started INTEGER, problem TEXT, checksum INTEGER,
    facts BLOB);
CREATE INDEX by_series ON runs (series, started);
CREATE INDEX by_id ON runs (run_id);
CREATE INDEX by_problem ON runs (problem) WHERE problem IS NOT NULL;
CREATE INDEX by_change ON runs (changed) WHERE changed < 0;
CREATE TABLE directory (changed INTEGER NOT NULL);
"""

_NO_SERIES = Series("", "", "", "", "", "", 0, 0, "", "", simulated=False)
"""Stands in a row's facts for the series, which the row names by number."""

_facts_in = msgspec.msgpack.Encoder()
_facts_out = msgspec.msgpack.Decoder(RunFacts)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class BrokenIndexError(Exception):
    """What the index says cannot be: it is rebuilt. Never leaves this room."""


def encoded(facts: RunFacts) -> bytes:
    """Write facts for a row, without the series, which the row names by number."""
    return _facts_in.encode(msgspec.structs.replace(facts, series=_NO_SERIES))


def decoded(blob: bytes, checksum: int, series: Series) -> RunFacts:
    """Read them back; raises `BrokenIndexError` where they are not what was written."""
    if checksum_of(blob, series) != checksum:
        raise BrokenIndexError("a row's checksum is wrong")
    try:
        return msgspec.structs.replace(_facts_out.decode(blob), series=series)
    except msgspec.DecodeError as error:
        raise BrokenIndexError(str(error)) from None


def checksum_of(blob: bytes, series: Series) -> int:
    return zlib.crc32(blob, _seed(series))


@functools.lru_cache(maxsize=1024)
def _seed(series: Series) -> int:
    return zlib.crc32(key_of(series).encode())


def key_of(series: Series) -> str:
    return msgspec.json.encode(series).decode()


def series_of_key(key: str) -> Series:
    try:
        return msgspec.json.decode(key, type=Series)
    except msgspec.DecodeError as error:
        raise BrokenIndexError(str(error)) from None


def stamp(at: datetime | None, otherwise: int) -> int:
    """Give microseconds since the epoch."""
    return otherwise if at is None else (at - _EPOCH) // timedelta(microseconds=1)


def time_of(stamp: int) -> datetime:
    return _EPOCH + timedelta(microseconds=stamp)
