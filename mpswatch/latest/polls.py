"""The newest poll, until it is stale, and how each source answered."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from mpswatch.documents import PollSnapshot, Reason
from mpswatch.latest.view import SourceHealth


class Polls:
    """Holds one poll. All times are seconds of one monotonic clock. Not locked: its owner is."""

    def __init__(self) -> None:
        self.poll: PollSnapshot | None = None
        self.first_finished = False
        self.sources: dict[tuple[str, str], SourceHealth] = {}
        self._expires: float | None = None

    @property
    def unknown(self) -> Reason | None:
        """Say why there is no poll to show."""
        if self.poll is not None:
            return None
        return Reason.STALE if self.first_finished else Reason.NO_POLL_YET

    def take(self, poll: PollSnapshot, *, expires: float) -> None:
        """Take the newest poll, which goes at `expires`. When a source last answered is remembered across polls."""
        before = self.sources
        self.poll, self._expires, self.first_finished = poll, expires, True
        self.sources = {}
        for look in poll.sources:
            key = (look.source, look.daemon or "")
            last = before[key].last_success_at if key in before else None
            self.sources[key] = SourceHealth(
                success=look.success,
                duration_seconds=look.duration_seconds,
                reason=look.reason,
                detail=look.detail,
                last_success_at=poll.finished_at if look.success else last,
            )

    def keep(self, daemons: Collection[str]) -> None:
        """Forget the sources of all other daemons; what the poll saw of them goes with the next one."""
        self.sources = {key: source for key, source in self.sources.items() if key[1] in daemons}

    def expire(self, now: float) -> bool:
        """Take out a poll whose time has come, and what it said of its sources; True if it did."""
        if self._expires is None or self._expires > now:
            return False
        self.poll = self._expires = None
        self.sources = {
            key: replace(source, success=None, duration_seconds=None, reason=Reason.STALE, detail=None)
            for key, source in self.sources.items()
        }
        return True

    def expiries(self) -> list[float]:
        """Say when the poll goes: one time or none."""
        return [] if self._expires is None else [self._expires]
