"""The GPUs that a control daemon serves, and what it calls them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mpswatch.mps.lines import lines_of, unexpected

_ROW = re.compile(rb"([0-9]{1,3}) +[0-9A-Fa-f:.]+ +((?:GPU|MIG)-[0-9a-f-]{36})( .*)?")


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU. `ordinal` is its number among the daemon's own; None where nothing tells it."""

    uuid: str
    ordinal: int | None = None


def served(visible: Sequence[str] | None, gpus: Sequence[str]) -> tuple[Device, ...]:
    """The devices among `gpus` (uuids) that a daemon with these CUDA_VISIBLE_DEVICES serves; None is all of them.

    CUDA's order of several GPUs is not the driver's: an ordinal is known where there is one, or where uuids are given.
    """
    if len(gpus) == 1:
        return (Device(gpus[0], 0),) if visible is None or visible else ()
    if visible is None or not all(word.startswith("GPU-") for word in visible):
        return tuple(Device(uuid) for uuid in gpus)
    found = [(ordinal, [uuid for uuid in gpus if uuid.startswith(word)]) for ordinal, word in enumerate(visible)]
    return tuple(Device(meant[0], ordinal) for ordinal, meant in found if len(meant) == 1)


def numbered(devices: Sequence[Device], answer: bytes) -> tuple[Device, ...]:
    """`devices` with the ordinals that `device_query` prints for the daemon; one that is not listed is not served.

    Raises `ReplyError`. The table of each server that follows is the same (recordings: two-gpus).
    """
    title, *lines = [line.strip() for line in lines_of(answer)]
    if title != b"Default" or not lines or not lines[0].startswith(b"Device Ordinal "):
        raise unexpected(title, "device_query")
    ordinals = {}
    for line in lines[1:]:
        if line.startswith(b"Server "):
            break
        row = _ROW.fullmatch(line)
        if row is None:
            raise unexpected(line, "device_query")
        ordinals[row[2].decode("ascii")] = int(row[1])
    return tuple(Device(device.uuid, ordinals[device.uuid]) for device in devices if device.uuid in ordinals)


def default_names(devices: Sequence[Device]) -> tuple[str, ...]:
    """Whatever a default limit may be set for: the daemon keeps uuids and ordinals apart (recording: limits).

    The ordinals are asked about also where it is not known whose they are.
    """
    ordinals = [number if device.ordinal is None else device.ordinal for number, device in enumerate(devices)]
    return (*(device.uuid for device in devices), *map(str, ordinals))
