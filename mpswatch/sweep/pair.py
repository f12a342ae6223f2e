"""One victim's rate under load, alone or beside an aggressor that works for the whole of its window.

Both are children of one launcher under its one lock, each proven to be managed before it runs anything, and each
under the first rule: bounded pieces, a look at the lifeline between them, drained before every way out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mpswatch.documents import ConditionsDuring, Rate, Reason, WorkKind
from mpswatch.evidence.median import summarize
from mpswatch.evidence.slowdown import EACH
from mpswatch.sweep.attempt import Attempt
from mpswatch.sweep.bench import Bench, CellError, Left, Seen
from mpswatch.sweep.cells import over_after
from mpswatch.sweep.channel import Post
from mpswatch.sweep.figures import during, within
from mpswatch.sweep.leaving import leave
from mpswatch.sweep.messages import Result
from mpswatch.sweep.permit import Permit
from mpswatch.sweep.plan import tflops


@dataclass(frozen=True, kw_only=True)
class Load:
    """A client's cap and what it computes."""

    cap: str
    kind: WorkKind


@dataclass(frozen=True, kw_only=True)
class Window:
    """How long (s) a client works under load before it is measured, at most, and how long it is measured then."""

    settle: float
    length: float
    block: float = 0.02
    tolerance: float = 0.005

    def request(self, *, open_ended: bool) -> dict[str, object]:
        """The `sustained` of a cell; an aggressor goes on, from its first block, until it is told `enough`."""
        settle = 0.0 if open_ended else self.settle
        return {
            "seconds": self.length,
            "block": self.block,
            "settle_least": settle / 2,
            "settle_most": settle,
            "tolerance": self.tolerance,
            "open_ended": open_ended,
        }


@dataclass(frozen=True, kw_only=True)
class Paired:
    """What became of it. `over` says why nothing further may run, `permit` is the one for what comes next."""

    victim: Seen
    aggressor: Seen | None
    failure: CellError | None
    over: CellError | None
    left: Sequence[Left]
    permit: Permit

    @property
    def stuck(self) -> tuple[int, ...]:
        return tuple(pid for left in self.left for pid in left.stuck)

    def conditions(self) -> ConditionsDuring:
        """What the GPU was doing in the victim's window."""
        return during(within(self.victim, "sustained"))


def run_pair(
    bench: Bench, *, permit: Permit, order: int, victim: Load, aggressor: Load | None, window: Window
) -> Paired:
    """Measure `victim` (client number `order`), beside `aggressor` (number `order` + 1) where there is one.

    Both attach before either works. The aggressor begins first, and hears `enough` when the victim has its result.
    """
    post = Post(bench.conversation)
    ours = Seen(order=order, cap=victim.cap)
    beside = None if aggressor is None else order + 1
    first_bench = replace(
        bench, conversation=post.channel(order), request=_request(victim, window, open_ended=False, beside=beside)
    )
    failure: CellError | None = None
    if aggressor is None:
        try:
            Attempt(first_bench, permit, ours).run()
        except CellError as error:
            failure = error
        return _paired([(first_bench, ours)], failure, permit)
    other = Seen(order=order + 1, cap=aggressor.cap)
    second_bench = replace(
        bench,
        conversation=post.channel(other.order),
        request=_request(aggressor, window, open_ended=True, beside=None),
        look=None,
    )
    try:
        second = Attempt(second_bench, permit, other)
        second.attach()
        permit = _with(permit, other)
        first = Attempt(first_bench, permit, ours)
        first.attach()
        second.go()
        second.await_running()
        first.go()
        first.finish()
        second.enough()
        second.finish()
        _check_beside(ours, other)
    except CellError as error:
        failure = error
    # The victim leaves first; an aggressor that is still at work drains and leaves when it hears `bye`.
    return _paired([(first_bench, ours), (second_bench, other)], failure, permit)


def _paired(clients: Sequence[tuple[Bench, Seen]], failure: CellError | None, permit: Permit) -> Paired:
    """Let them leave, and say what came of it. A child that was never asked for is not waited for."""
    asked = [(bench, seen) for bench, seen in clients if seen.asked]
    left = [leave(bench, seen) for bench, seen in asked]
    stuck = _stuck(left)
    overs = [over_after(seen, failure) for _, seen in asked]
    return Paired(
        victim=clients[0][1],
        aggressor=clients[1][1] if len(clients) > 1 else None,
        failure=stuck or failure,
        over=stuck or next((over for over in overs if over is not None), None),
        left=left,
        permit=_with(permit, clients[0][1]),
    )


def rate(results: Sequence[Result], *, size: int) -> Rate | None:
    """How fast a client worked under load, over all of its windows; None where there is no sample."""
    said = [result.sustained for result in results if result.sustained is not None]
    samples = [seconds for one in said for seconds in one.samples]
    if not samples:
        return None
    unit, each = _unit(results[0], size)
    summary = summarize([each / seconds for seconds in samples], EACH)
    interval = summary.interval
    return Rate(
        unit=unit,
        value=summary.median,
        interval_low=interval.low if interval else None,
        interval_high=interval.high if interval else None,
        confidence=EACH,
        spread=summary.spread,
        count=summary.count,
        settled=all(one.settled for one in said),
    )


def _unit(result: Result, size: int) -> tuple[str, float]:
    """What a rate is counted in, and how much of it one kernel does."""
    if result.kind == "stream" and result.bytes_each:
        return "GB/s", result.bytes_each / 1e9
    if result.kind == "launch":
        return "launches/s", 1.0
    return "TFLOPS", tflops(size=size, iters=1, seconds=1.0)


def _request(load: Load, window: Window, *, open_ended: bool, beside: int | None) -> dict[str, object]:
    asked: dict[str, object] = {
        "kind": load.kind,
        "samples": 0,
        "passes": 0,
        "sustained": window.request(open_ended=open_ended),
    }
    return asked if beside is None else {**asked, "beside": beside}


def _with(permit: Permit, seen: Seen) -> Permit:
    """The permit for whoever joins next: with the server as it was when `seen` was found on its list."""
    if seen.member is None:
        return permit
    return replace(permit, server=seen.member.server, own=permit.own or permit.server is None)


def _check_beside(ours: Seen, other: Seen) -> None:
    """The aggressor was at work for the whole of the victim's window, by the one clock of this host."""
    window = ours.result.phases.get("sustained") if ours.result else None
    at_work = other.result.phases.get("sustained") if other.result else None
    if window is None or at_work is None or window[0] < at_work[0] or window[1] > at_work[1]:
        raise CellError(
            Reason.CLIENT_NONSENSE, f"the aggressor was not at work ({at_work}) for the whole window ({window})"
        )


def _stuck(left: Sequence[Left]) -> CellError | None:
    pids = [pid for one in left for pid in one.stuck]
    if not pids:
        return None
    return CellError(Reason.CLIENT_STUCK, f"process {', '.join(map(str, pids))} did not leave in time")
