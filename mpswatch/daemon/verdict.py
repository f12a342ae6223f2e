"""One sentence about this host: sweeps will run, or will not because X; do Y. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from mpswatch.daemon.events import Target
from mpswatch.daemon.hold import Hold
from mpswatch.daemon.parts import Parts
from mpswatch.daemon.targets import targets
from mpswatch.documents import PollSnapshot, Reason
from mpswatch.sweep.permit import Circumstances, LockHolder, Refusal
from mpswatch.sweep.preflight import decide

PASSES_BY_ITSELF = frozenset(
    {Reason.SERVER_UNSETTLED, Reason.RECENT_FAULT, Reason.SWEEP_RUNNING, Reason.UTILIZATION_HIGH, Reason.QUIET_HOURS}
)
"""What holds sweeps for a while and needs nobody to act."""


class Verdict(NamedTuple):
    """`refusals` are empty when sweeps will run; `later` when all that holds them passes by itself."""

    refusals: tuple[tuple[Target | None, Refusal], ...]
    will_run: str

    @property
    def good(self) -> bool:
        return not self.refusals

    @property
    def later(self) -> bool:
        return bool(self.refusals) and all(refusal.reason in PASSES_BY_ITSELF for _, refusal in self.refusals)

    def __str__(self) -> str:
        if self.good:
            return f"sweeps will run: {self.will_run}"
        first = self.refusals[0][1]
        start = "sweeps will run, but not yet" if self.later else "sweeps will not run"
        return f"{start}: {first.detail}" + (f"; {first.remedy}" if first.remedy else "")


def verdict(
    parts: Parts,
    snapshot: PollSnapshot,
    *,
    held: Hold | None,
    client: Refusal | None,
    last_fault_age: Callable[[str], float | None] = lambda _daemon: None,
    lock_holders: tuple[LockHolder, ...] = (),
    available_memory: int | None = None,
) -> Verdict:
    """What the preflight would say now, for every target, with what holds sweeps before it is asked."""
    found: list[tuple[Target | None, Refusal]] = []
    if held is not None:
        found.append((None, Refusal(reason=held.reason, detail=held.detail, remedy=held.remedy)))
    aims = targets(snapshot)
    for target in aims:
        circumstances = Circumstances(
            need_bytes=parts.plan.memory_bytes,
            last_fault_age=last_fault_age(target.daemon),
            lock_holders=lock_holders,
            available_memory=available_memory,
            sweep_longest=parts.plan.sweep_deadline + parts.plan.drain_deadline,
        )
        decision = decide(
            snapshot, daemon=target.daemon, gpu_uuid=target.gpu_uuid, limits=parts.limits, circumstances=circumstances
        )
        if isinstance(decision, Refusal):
            found.append((target, decision))
    if client is not None:
        found.append((None, client))
    # what needs somebody to act comes first: it is what the sentence says
    found.sort(key=lambda item: item[1].reason in PASSES_BY_ITSELF)
    where = ", ".join(f"{target.gpu_uuid} under {target.daemon}" for target in aims)
    sweep = parts.config.sweep
    return Verdict(tuple(found), f"{where}, caps {','.join(sweep.caps)}, every {sweep.interval:g} s")
