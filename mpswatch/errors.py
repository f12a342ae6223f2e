"""One tree of errors. Each carries a bounded reason, which is also the metric's label value."""

from __future__ import annotations

from mpswatch.documents import Reason


class MpswatchError(Exception):
    """Something that mpswatch expected could go wrong, went wrong.

    `reason` is bounded; `detail` says what was seen, for a person; `remedy` says what to do, where known.
    """

    def __init__(self, reason: Reason, detail: str, remedy: str | None = None) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.remedy = remedy
