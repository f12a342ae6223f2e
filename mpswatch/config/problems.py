"""What is wrong with a configuration: every fault at once, each with its place."""

from __future__ import annotations

from collections.abc import Sequence

from mpswatch.documents import Reason
from mpswatch.errors import MpswatchError
from mpswatch.yaml_tree import Problem


class ConfigError(MpswatchError):
    """A configuration that cannot be used, with all its faults."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.source = source
        self.problems = tuple(problems)
        count = len(self.problems)
        listed = "".join(f"\n  {problem}" for problem in self.problems)
        super().__init__(
            Reason.CONFIGURATION,
            f"{source}: {count} fault{'s' if count != 1 else ''}{listed}",
            "mend the keys named, then try: mpswatch check-config",
        )
