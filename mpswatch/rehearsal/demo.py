"""The stack that `mpswatch demo` shows: two managed services, and a foreign tenant that comes and goes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from mpswatch.rehearsal.stack import Stack

VISITOR_AWAY = 20.0  # seconds
VISITOR_STAYS = 40.0


@contextlib.contextmanager
def demo_stack(
    directory: Path | str, *, seed: int = 1, away: float = VISITOR_AWAY, stay: float = VISITOR_STAYS
) -> Iterator[Stack]:
    """A started stack with the demonstration's tenants; the same `seed` gives the same comings and goings."""
    with Stack(directory) as stack:
        stack.add_service("chat", memory_mib=636)
        stack.add_service("embedding", memory_mib=412)
        notebook = ("/opt/notebook/bin/python3", "-m", "ipykernel_launcher", "-f", "/run/kernel-1.json")
        stack.add_foreign("notebook", 658, arguments=notebook)
        stack.tell(
            "visitor",
            name="training",
            memory_mib=2400,
            away=away,
            stay=stay,
            seed=seed,
            arguments=("/home/someone/.venv/bin/python3", "train.py"),
        )
        yield stack
