"""When a cap begins to stand otherwise than usual and when that ends, each said once. Pure.

What lasts is known from what was said of it: the journal's newest line about each cap, so a restart repeats nothing.
A run whose cap has no number, or too short a history, ends nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mpswatch.documents import CapStanding, Event, EventKind, HistoryLook
from mpswatch.evidence.quantities import WORDS

BEGAN: EventKind = "standing_began"
ENDED: EventKind = "standing_ended"

_LASTING = {"below": "below its own history", "above": "above its own history", "explained": "explained by its company"}


class Subject(NamedTuple):
    """What stands: one quantity of one cap of a daemon's GPU under a plan."""

    daemon: str
    gpu_uuid: str
    plan: str
    cap: str
    quantity: str


def lasting(newest_first: Iterable[Event], *, simulated: bool) -> dict[Subject, str]:
    """Say what still lasts, by the lines of the journal of these two kinds."""
    found: dict[Subject, str | None] = {}
    for event in newest_first:
        about = event.details
        if event.simulated == simulated and event.kind in (BEGAN, ENDED):
            subject = Subject(
                event.daemon or "",
                event.gpu_uuid or "",
                event.plan or "",
                str(about.get("cap")),
                str(about.get("quantity")),
            )
            found.setdefault(subject, str(about.get("standing")) if event.kind == BEGAN else None)
    return {subject: standing for subject, standing in found.items() if standing is not None}


def turns(look: HistoryLook, before: Mapping[Subject, str]) -> tuple[dict[Subject, str], list[Event]]:
    """Give what lasts after `look`, and the events that lead there from what lasted `before` it."""
    after = dict(before)
    events: list[Event] = []
    for cap in look.caps:
        subject = Subject(look.daemon, look.gpu_uuid, look.plan, cap.cap, cap.quantity)
        if cap.standing == "unknown" or _is_said_by_another(cap, look):
            continue
        was, now = before.get(subject), cap.standing if cap.standing in _LASTING else None
        if was == now:
            continue
        if was is not None:
            del after[subject]
            events.append(_event(ENDED, look, cap, was, f"is no longer {_LASTING.get(was, was)}"))
        if now is not None:
            after[subject] = now
            events.append(_event(BEGAN, look, cap, now, f"is {_LASTING[now]}"))
    return after, events


def _is_said_by_another(cap: CapStanding, look: HistoryLook) -> bool:
    """The single pass of a thorough run is one of those that its burst is made of."""
    return cap.quantity == "tflops" and any((one.cap, one.quantity) == (cap.cap, "burst") for one in look.caps)


def _event(kind: EventKind, look: HistoryLook, cap: CapStanding, standing: str, words: str) -> Event:
    number = (
        f"{cap.tflops:.4g} TFLOPS, usually {cap.median:.4g}" if cap.tflops is not None and cap.median else "unknown"
    )
    by = f", {'; '.join(cap.explained_by)}" if cap.explained_by else ""
    return Event(
        kind=kind,
        at=look.judged_at,
        host=look.host,
        message=f"{cap.cap} % {WORDS[cap.quantity]}, plan {look.plan}, {words}: {number}{by}",
        simulated=look.simulated,
        daemon=look.daemon,
        gpu_uuid=look.gpu_uuid,
        plan=look.plan,
        run_id=look.run_id,
        details={
            "cap": cap.cap,
            "quantity": cap.quantity,
            "standing": standing,
            "now": cap.standing,
            "tflops": cap.tflops,
            "median": cap.median,
            "low": cap.low,
            "high": cap.high,
            "runs": cap.runs,
            "explained_by": list(cap.explained_by),
        },
    )
