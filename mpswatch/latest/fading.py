"""The newest measurement of each key, whose document is taken out once it is too old; what remains is its times."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Generic, TypeVar

from mpswatch.latest.view import InterferenceHealth, SweepHealth

Key = TypeVar("Key", bound=Hashable)
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
