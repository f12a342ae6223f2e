"""What holds a sweep before anybody is asked anything: switched off, paused, quiet hours. Pure."""

from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import NamedTuple

from mpswatch.config.shape import SweepSection
from mpswatch.documents import Reason


class Hold(NamedTuple):
    """Why no sweep starts now, for how long at least (seconds, None: until somebody acts), and what to do."""

    reason: Reason
    detail: str
    remedy: str
    seconds: float | None = None


def hold(settings: SweepSection, *, paused: bool, asked_for: bool, now: datetime) -> Hold | None:
    """What holds the sweep at `now` (aware); None when nothing does.

    A pause holds every sweep. One that a person asked for runs in quiet hours and with the schedule off.
    """
    if paused:
        return Hold(Reason.PAUSED, "sweeps are paused", "mpswatch resume")
    if asked_for:
        return None
    if not settings.enabled:
        return Hold(Reason.DISABLED, "sweep.enabled is false", "set sweep.enabled: true")
    local = now.astimezone(_zone(settings.time_zone))
    for start, end in settings.quiet_hours:
        if _within(local.time(), start, end):
            over = _seconds_until(local, end)
            return Hold(
                Reason.QUIET_HOURS,
                f"quiet hours {start:%H:%M}-{end:%H:%M} ({settings.time_zone})",
                "wait, or change sweep.quiet_hours",
                over,
            )
    return None


def _zone(name: str) -> tzinfo | None:
    if name in {"local", "UTC"}:  # without the files of a tzdata, which small images lack
        return UTC if name == "UTC" else None
    return zoneinfo.ZoneInfo(name)


def _within(moment: time, start: time, end: time) -> bool:
    return start <= moment < end if start < end else moment >= start or moment < end


def _seconds_until(local: datetime, end: time) -> float:
    until = local.replace(hour=end.hour, minute=end.minute, second=0, microsecond=0)
    if until <= local:
        until += timedelta(days=1)
    return max(1.0, (until - local).total_seconds())
