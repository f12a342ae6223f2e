"""A source that may hang for ever (an NVML call into a dead driver) is asked in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from mpswatch.documents import Reason
from mpswatch.errors import MpswatchError

T = TypeVar("T")


class SourceStuck(MpswatchError):  # noqa: N818 -- says what happened, and reads so where it is caught
    """The source did not come back in time, or still has not come back from an earlier question."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(Reason.SOURCE_STUCK, f"{name}: {detail}")


class _Question(Generic[T]):
    """One call under way: its outcome, and the event that says that it is there."""

    def __init__(self, fn: Callable[[], T]) -> None:
        self.fn = fn
        self.done = threading.Event()
        self.value: T | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.value = self.fn()
        except BaseException as error:  # noqa: BLE001 -- handed to the asker, whatever it is
            self.error = error
        finally:
            self.done.set()


class Watched:
    """Asks one source, one question at a time, and gives up on a late one without stopping it.

    The thread is a daemon thread: a call that never returns does not hold the interpreter's exit.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._pending: threading.Event | None = None

    def call(self, fn: Callable[[], T], deadline: float) -> T:
        """Run `fn` in this source's thread and return its value within `deadline` seconds.

        Raises SourceStuck when it is late, and at once on each later call until the late one came back.
        What `fn` raises is raised here.
        """
        question = _Question(fn)
        with self._lock:
            if self._pending is not None and not self._pending.is_set():
                raise SourceStuck(self.name, "still has not come back from an earlier question")
            self._pending = question.done
        try:
            threading.Thread(target=question.run, name=f"watched-{self.name}", daemon=True).start()
        except RuntimeError as error:
            question.done.set()
            raise SourceStuck(self.name, f"no thread to ask it in: {error}") from error
        if not question.done.wait(deadline):
            raise SourceStuck(self.name, f"no answer within {deadline:g} s")
        if question.error is not None:
            raise question.error
        return cast("T", question.value)  # set, since `fn` returned
