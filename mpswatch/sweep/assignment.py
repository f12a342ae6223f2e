"""What is asked of whoever measures: the arguments that a sweep and an interference measurement share."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from mpswatch.sweep.permit import Limits
from mpswatch.sweep.plan import Plan
from mpswatch.sweep.ports import Address, Ports, Watcher
from mpswatch.sweep.stop import Stop


class Assignment(TypedDict):
    """One GPU (`gpu_uuid`) under one control daemon, by `plan` and within `limits`; `trigger` says on whose wish.

    `stop` ends it sooner than `plan.sweep_deadline`, and nothing else may. `progress` is called at each step.
    """

    plan: Plan
    daemon: Address
    gpu_uuid: str
    host: str
    limits: Limits
    ports: Ports
    stop: Stop
    trigger: str
    progress: NotRequired[Watcher]
