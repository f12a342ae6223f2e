"""Two cells on one launcher: each hears its own messages, and speaks to its own child."""

from __future__ import annotations

import collections
from collections.abc import Mapping

from mpswatch.process.launch import Launched
from mpswatch.sweep.conversation import Heard, Talk

_FOR_ONE = frozenset({"go", "enough", "bye"})


class Post:
    """What was heard for a cell that was not listening, by its order; only for cells that have a channel."""

    def __init__(self, conversation: Talk) -> None:
        self.conversation = conversation
        self.waiting: dict[int, collections.deque[Heard]] = {}

    def channel(self, order: int) -> Channel:
        self.waiting.setdefault(order, collections.deque())
        return Channel(self, order)


class Channel:
    """A `Talk` for the cell `order`. What concerns no cell that has a channel is heard by whoever listens."""

    def __init__(self, post: Post, order: int) -> None:
        self._post = post
        self._order = order

    @property
    def launched(self) -> Launched:
        return self._post.conversation.launched

    def say(self, message: Mapping[str, object]) -> bool:
        addressed = {word: self._order if word in _FOR_ONE else body for word, body in message.items()}
        return self._post.conversation.say(addressed)

    def hear(self, *, until: float, heed_stop: bool = True) -> Heard:
        own = self._post.waiting[self._order]
        while not own:
            heard = self._post.conversation.hear(until=until, heed_stop=heed_stop)
            order = getattr(heard, "order", None)
            if order is None or order == self._order or order not in self._post.waiting:
                return heard
            self._post.waiting[order].append(heard)
        return own.popleft()
