"""What a stack can be told (tell.py says it in words), done by the director."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpswatch.rehearsal.director import Director
from mpswatch.rehearsal.layout import RehearsalError
from mpswatch.rehearsal.orders import daemons, faults, report, tenancy

_ORDERS: dict[str, Callable[..., dict[str, Any] | None]] = {
    "daemon": daemons.create,
    "hang": daemons.hang,
    "resume": daemons.resume,
    "die": daemons.die,
    "start": daemons.start,
    "restart": daemons.restart,
    "replace_server": daemons.replace_server,
    "service": tenancy.service,
    "foreign": tenancy.foreign,
    "remove": tenancy.remove,
    "ghost": tenancy.ghost,
    "fill": tenancy.fill,
    "drain": tenancy.drain,
    "queue": tenancy.queue,
    "visitor": tenancy.visitor,
    "lie": faults.lie,
    "state": faults.set_state,
    "attach": faults.attach,
    "slow": faults.slow,
    "break": faults.break_one,
    "smi": faults.set_smi,
    "gpu": faults.set_gpu,
    "honest": faults.honest,
    "status": report.status,
}


def obey(director: Director, order: dict[str, Any]) -> dict[str, Any]:
    """Carry out one order; its reply is what the order's words in tell.py promise."""
    details = dict(order)
    word = details.pop("do", None)
    if word not in _ORDERS:
        raise RehearsalError(f"{word!r} is none of the orders {', '.join(sorted(_ORDERS))}")
    return _ORDERS[word](director, **details) or {}
