"""The GPUs that a control daemon serves, and what it calls them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU. `ordinal` is its number among the daemon's own; None where nothing tells it."""

    uuid: str
    ordinal: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """What a default limit may have been set for: the daemon keeps uuid and ordinal apart (recording: limits)."""
        return (self.uuid,) if self.ordinal is None else (self.uuid, str(self.ordinal))


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
