"""What was said already: a line for each change, not for each repeat."""

from __future__ import annotations


class Said:
    """Remembers the last thing said about each subject."""

    def __init__(self) -> None:
        self._last: dict[str, str | None] = {}

    def is_new(self, subject: str, what: str | None) -> bool:
        """Whether `what` differs from what was last said about `subject`; None is "all is well", the start."""
        before = self._last.get(subject)
        self._last[subject] = what
        return before != what
