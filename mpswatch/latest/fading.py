"""The newest measurement of each key, whose document is taken out once it is too old; what remains is its times."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Generic, TypeVar

from mpswatch.latest.view import InterferenceHealth, SweepHealth, Target

Key = TypeVar("Key", Target, tuple[str, str])
Health = TypeVar("Health", SweepHealth, InterferenceHealth)


class Fading(Generic[Key, Health]):
    """Holds `Health` by `Key`. All times are seconds of one monotonic clock. Not locked: its owner is."""

    def __init__(self) -> None:
        self.health: dict[Key, Health] = {}
        self._expires: dict[Key, float] = {}

    def put(self, key: Key, health: Health, *, expires: float, now: float) -> None:
        """Take the newest of `key`; its document goes at `expires`, at once if that has passed."""
        self.health[key] = health
        self._expires[key] = expires
        self.expire(now)

    def keep(self, daemons: Collection[str]) -> None:
        """Forget what was measured under all other daemons: a key begins with its daemon."""
        for key in [key for key in self.health if key[0] not in daemons]:
            del self.health[key]
            self._expires.pop(key, None)

    def expire(self, now: float) -> bool:
        """Take out the documents whose time has come; True if there were any."""
        stale = [key for key, at in self._expires.items() if at <= now]
        for key in stale:
            del self._expires[key]
            self.health[key] = replace(self.health[key], document=None)
        return bool(stale)

    def expiries(self) -> list[float]:
        """Say when documents go."""
        return list(self._expires.values())
