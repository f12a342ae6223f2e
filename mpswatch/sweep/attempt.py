"""The way to a number: a child attaches, is found in the daemon's list, is told to go, and measures."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Final, TypeVar

from mpswatch.documents import Reason
from mpswatch.names import clip, printable
from mpswatch.sweep import progress
from mpswatch.sweep.bench import Bench, CellError, Seen
from mpswatch.sweep.conversation import Babble, Ended, Heard, Late, Stopped
from mpswatch.sweep.membership import Member, find, pauses, still
from mpswatch.sweep.messages import Attached, Failed, Forked, Gone, Result, Running
from mpswatch.sweep.permit import Permit

CLIENT_REASONS: Final = frozenset(
    {
        Reason.CAP_OUT_OF_RANGE,
        Reason.CLIENT_DIED,
        Reason.CLIENT_ERROR,
        Reason.CLIENT_IMPORT_FAILED,
        Reason.CLIENT_NONSENSE,
        Reason.CLIENT_STUCK,
        Reason.CUDA_UNAVAILABLE,
        Reason.DAEMON_ABSENT,
        Reason.DEADLINE,
        Reason.KERNEL_TOO_LONG,
        Reason.NOT_MANAGED,
        Reason.NOT_SUPPORTED,
        Reason.OUT_OF_MEMORY,
        Reason.PERMISSION,
        Reason.SERVER_FAULT,
        Reason.SERVER_FULL,
        Reason.STOPPED,
        Reason.SWEEP_RUNNING,
    }
)
"""What the client may say about itself; any other word of its is `client_error`."""

M = TypeVar("M", Attached, Running, Result)


_LOOKS_MOST = 1000


def said_reason(failed: Failed) -> Reason:
    """The reason in a `failed` message, as far as a client may give it."""
    try:
        reason = Reason(failed.reason)
    except ValueError:
        return Reason.CLIENT_ERROR
    return reason if reason in CLIENT_REASONS else Reason.CLIENT_ERROR


def how_ended(status: int | None) -> str:
    """An exit status (negative: a signal) in words."""
    if status is None:
        return "still there, with its output closed"
    return f"signal {-status}" if status < 0 else f"exit status {status}"


def status_of(gone: Gone) -> int | None:
    """How a child left, as an exit status (negative: a signal)."""
    return -gone.signal if gone.signal is not None else gone.exit


def _patience(cell_deadline: float) -> float:
    """Seconds: a little more than the child's own deadline, so that it is the one to say why."""
    return cell_deadline + min(1.0, 0.2 + cell_deadline / 10)


class Attempt:
    """One child up to its result. `seen` fills on the way, also where `run` raises `CellError`."""

    def __init__(self, bench: Bench, permit: Permit, seen: Seen) -> None:
        self._bench = bench
        self._permit = permit
        self._seen = seen
        self._until = min(seen.started + _patience(bench.plan.cell_deadline), bench.sweep_end)

    def run(self) -> None:
        """Through to a result that counts, or `CellError`."""
        self.attach()
        self.go()
        self.finish()

    def attach(self) -> None:
        """Up to a client that is proven to be managed, and has run nothing yet."""
        bench, seen = self._bench, self._seen
        bench.log.rewind()
        order, of, cap = seen.order, len(bench.plan.caps), seen.cap
        bench.watch(progress.CellStarted(order=order, of=of, cap=cap))
        seen.asked = True
        self._say({"cell": self._cell()})
        seen.attached = attached = self._expect(Attached)
        seen.attached_at = time.monotonic()
        bench.watch(progress.CellAttached(order=order, of=of, cap=cap, sm_count=attached.sm_count))
        self._check_device(attached)
        seen.member = member = self._prove(attached)
        seen.joined = member.joined

    def go(self) -> None:
        """Let it work."""
        bench, seen = self._bench, self._seen
        seen.before = bench.ports.conditions(bench.gpu_uuid)
        if seen.member is not None:
            order, of = seen.order, len(bench.plan.caps)
            bench.watch(progress.CellMeasuring(order=order, of=of, cap=seen.cap, client_pid=seen.member.pid))
        seen.told_at = time.monotonic()
        self._say({"go": True})

    def await_running(self) -> None:
        """Until it says that it begins to work under load, which it does until it hears `enough`."""
        self._expect(Running)

    def enough(self) -> None:
        """Let it end its load, and report."""
        self._say({"enough": True})

    def finish(self) -> None:
        """Its result, which counts once the client was found in the list again."""
        bench, seen, member = self._bench, self._seen, self._seen.member
        if member is None or seen.told_at is None:
            raise CellError(Reason.NOT_MANAGED, "the client was not told to go")
        result = self._result()
        wall = time.monotonic() - seen.told_at
        seen.measured_at = datetime.now(UTC)
        seen.after = bench.ports.conditions(bench.gpu_uuid)
        if result.seconds > wall * 1.01 + 0.001:
            detail = f"the client says {result.seconds} s, and {wall:.6f} s passed since it was told to go"
            raise CellError(Reason.CLIENT_NONSENSE, detail)
        doubt = still(bench.ports.look_at_daemon(), member, bench.ports.processes)
        if doubt is not None:
            raise CellError(doubt.reason, doubt.detail)
        seen.result = result

    def _result(self) -> Result:
        """The result; meanwhile the GPU's conditions are noted, by us: the client has nothing to do with that."""
        bench, seen = self._bench, self._seen
        while bench.look is not None:
            heard = self._hear(min(self._until, time.monotonic() + bench.look))
            if not isinstance(heard, Late) or time.monotonic() >= self._until:
                return self._as(Result, heard)
            if len(seen.during) < _LOOKS_MOST:
                seen.during.append((time.monotonic(), bench.ports.conditions(bench.gpu_uuid)))
        return self._expect(Result)

    def _cell(self) -> dict[str, object]:
        plan = self._bench.plan
        return {
            "order": self._seen.order,
            "cap": self._seen.cap,
            "size": plan.size,
            "iters": plan.iters,
            "dtype": plan.dtype,
            "seed": self._bench.seed,
            "deadline": plan.cell_deadline,
            "warm_up": plan.warm_up,
            "samples": plan.samples,
            **self._bench.request,
        }

    def _check_device(self, attached: Attached) -> None:
        said, meant = attached.device_uuid, self._bench.gpu_uuid
        if said is not None and said.lower().removeprefix("gpu-") != meant.lower().removeprefix("gpu-"):
            detail = f"the client is on device {clip(printable(said))}, not {meant}"
            raise CellError(Reason.CLIENT_NONSENSE, detail)

    def _prove(self, attached: Attached) -> Member:
        """Look at the list until our client is on it; no go without that."""
        ports, conversation = self._bench.ports, self._bench.conversation
        until = min(time.monotonic() + self._bench.plan.join_deadline, self._until)
        pause = pauses()
        while True:
            found = find(
                ports.look_at_daemon(),
                before=self._permit.clients,
                server_pid=self._permit.server_pid,
                start_ticks=self._permit.start_ticks,
                reported_pid=attached.pid,
                processes=ports.processes,
                is_ours=lambda facts: ports.runtime.is_ours(conversation.launched, facts),
            )
            if isinstance(found, Member):
                break
            self._seen.joined = found.joined
            now = time.monotonic()
            if found.final or now >= until:
                raise CellError(found.reason, found.detail)
            heard = self._hear(min(now + pause(), until))
            if not isinstance(heard, Late):
                raise self._unexpected(heard, "nothing")
        server = found.server
        if self._permit.server is None and not server.multi_user and server.uid != self._bench.limits.client_uid:
            raise CellError(Reason.UID_MISMATCH, f"the new server {server.pid} serves uid {server.uid}")
        return found

    def _say(self, message: dict[str, object]) -> None:
        if not self._bench.conversation.say(message):
            # What it said before it went is the better reason.
            raise self._unexpected(self._hear(time.monotonic()), "nothing")

    def _hear(self, until: float) -> Heard:
        """The next thing that happens; `forked` is taken note of on the way.

        The launcher writes it after the fork, so what the child says may come first.
        """
        while True:
            heard = self._bench.conversation.hear(until=until)
            if isinstance(heard, Forked) and self._seen.forked is None and heard.order == self._seen.order:
                self._seen.forked = heard
                continue
            return heard

    def _expect(self, kind: type[M]) -> M:
        return self._as(kind, self._hear(self._until))

    def _as(self, kind: type[M], heard: Heard) -> M:
        if isinstance(heard, kind) and (heard.order, heard.cap) == (self._seen.order, self._seen.cap):
            return heard
        raise self._unexpected(heard, kind.__name__.lower())

    def _unexpected(self, heard: Heard, expected: str) -> CellError:  # noqa: PLR0911 - one return a case reads best
        """Whatever is not what should come now, as the reason why the cell is over."""
        match heard:
            case Stopped():
                return CellError(Reason.STOPPED, "the sweep was asked to end")
            case Late():
                whose = "the sweep's" if self._until >= self._bench.sweep_end else "the cell's"
                return CellError(Reason.DEADLINE, f"{whose} deadline passed while waiting for {expected}")
            case Ended(status=status):
                return self._with_last_words(Reason.CLIENT_DIED, f"the launcher ended ({how_ended(status)})")
            case Babble(detail=detail):
                return CellError(Reason.CLIENT_NONSENSE, detail)
            case Failed(order=None | self._seen.order):
                self._seen.failed_itself = True
                self._seen.never_forked = heard.phase == "launcher" and self._seen.forked is None
                reason = said_reason(heard)
                if reason is Reason.STOPPED:
                    reason = Reason.CLIENT_DIED  # nobody here asked it to leave: its launcher went away
                return self._with_last_words(reason, f"{heard.phase}: {heard.detail or heard.reason}")
            case Gone(order=self._seen.order, cap=self._seen.cap):
                self._seen.gone = heard
                text = f"the client ended ({how_ended(status_of(heard))}) while {expected} was expected"
                return self._with_last_words(Reason.CLIENT_DIED, text)
        said, about = type(heard).__name__.lower(), getattr(heard, "order", None)
        detail = f"the client said {said} of cell {about}; of cell {self._seen.order} {expected} was expected"
        return CellError(Reason.CLIENT_NONSENSE, detail)

    def _with_last_words(self, reason: Reason, text: str) -> CellError:
        words = self._bench.log.last()
        return CellError(reason, clip(printable(text) + (f"; its last words: {words}" if words else ""), 600))
