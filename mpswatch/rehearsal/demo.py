"""The stack that `mpswatch demo` shows: two managed services, and a foreign tenant that comes and goes."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from mpswatch.rehearsal.stack import Stack

VISITOR_AWAY = 20.0  # seconds
VISITOR_STAYS = 40.0


class DemoStack(Stack):
    """A stack whose start also brings the demonstration's tenants; the same `seed`, the same comings and goings."""

    def __init__(self, directory: Path | str, *, seed: int, away: float, stay: float) -> None:
        super().__init__(directory)
        self._seed = seed
        self._away = away
        self._stay = stay

    def start(self) -> Self:
        super().start()
        try:
            self._bring_tenants()
        except BaseException:
            self.stop()
            raise
        return self

    def _bring_tenants(self) -> None:
        self.add_service("chat", memory_mib=636)
        self.add_service("embedding", memory_mib=412)
        notebook = ("/opt/notebook/bin/python3", "-m", "ipykernel_launcher", "-f", "/run/kernel-1.json")
        self.add_foreign("notebook", 658, arguments=notebook)
        self.tell(
            "visitor",
            name="training",
            memory_mib=2400,
            away=self._away,
            stay=self._stay,
            seed=self._seed,
            arguments=("/home/someone/.venv/bin/python3", "train.py"),
        )


def demo_stack(
    directory: Path | str, *, seed: int = 1, away: float = VISITOR_AWAY, stay: float = VISITOR_STAYS
) -> Stack:
    """The demonstration's stack in `directory`, not started yet: a context manager as every `Stack`.

    Beside the lasting notebook a training run visits: `away` seconds out, `stay` seconds in, a fifth more or less.
    """
    return DemoStack(directory, seed=seed, away=away, stay=stay)
