"""A source that may hang for ever (an NVML call into a dead driver) is asked in a thread of its own."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from mpswatch.documents import Reason
from mpswatch.errors import MpswatchError

T = TypeVar("T")


class SourceStuck(MpswatchError):  # noqa: N818 -- says what happened, and reads so where it is caught
    """The source did not come back in time, or still has not come back from an earlier question."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(Reason.SOURCE_STUCK, f"{name}: {detail}")


class Question(Generic[T]):
    """One call under way in a source's thread. Its result can be had once."""

    def __init__(self, name: str, fn: Callable[[], T]) -> None:
        self._name = name
        self._fn = fn
        self._done = threading.Event()
        self._began = time.monotonic()
        self._value: T | None = None
        self._error: BaseException | None = None

    @property
    def is_open(self) -> bool:
        return not self._done.is_set()

    def run(self) -> None:
        try:
            self._value = self._fn()
        except BaseException as error:  # noqa: BLE001 -- handed to the asker, whatever it is
            self._error = error
        finally:
            self._done.set()

    def result(self, deadline: float) -> T:
        """What the call returned or raised, by `deadline` seconds from its beginning; SourceStuck when it is late."""
        if not self._done.wait(max(0.0, self._began + deadline - time.monotonic())):
            raise SourceStuck(self._name, f"no answer within {deadline:g} s")
        if self._error is not None:
            raise self._error
        value, self._value = self._value, None  # not kept alive until the next question
        return cast("T", value)  # set, since the call returned


class Watched:
    """Asks one source, one question at a time, and gives up on a late one without stopping it.

    The thread is started with the first question and kept: starting one costs more CPU than most questions do.
    It is a daemon thread: a call that never returns does not hold the interpreter's exit.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._questions: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._has_thread = False
        self._pending: Question[Any] | None = None

    def __del__(self) -> None:
        self._questions.put(None)

    def begin(self, fn: Callable[[], T]) -> Question[T]:
        """Run `fn` in this source's thread; its `result` is to be asked for.

        Raises SourceStuck at once while an earlier question has not come back.
        """
        with self._lock:
            if self._pending is not None and self._pending.is_open:
                raise SourceStuck(self.name, "still has not come back from an earlier question")
            if not self._has_thread:
                work = threading.Thread(
                    target=_answer, args=(self._questions,), name=f"watched-{self.name}", daemon=True
                )
                try:
                    work.start()
                except RuntimeError as error:
                    raise SourceStuck(self.name, f"no thread to ask it in: {error}") from error
                self._has_thread = True
            question = self._pending = Question(self.name, fn)
            self._questions.put(question.run)
        return question

    def call(self, fn: Callable[[], T], deadline: float) -> T:
        """Run `fn` in this source's thread and return its value within `deadline` seconds.

        Raises SourceStuck when it is late, and at once on each later call until the late one came back.
        What `fn` raises is raised here.
        """
        return self.begin(fn).result(deadline)


def _answer(questions: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    """A source's thread: until nobody holds the source any more. It keeps no answer alive between two questions."""
    while True:
        run = questions.get()
        if run is None:
            return
        run()
        del run
