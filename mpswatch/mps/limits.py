"""Memory limits as a document has them: by GPU, and with a reason where they are not known."""

from __future__ import annotations

from collections.abc import Sequence

from mpswatch.documents import Reason
from mpswatch.mps.devices import Device
from mpswatch.mps.grammar import Limits, ServerReply

MemoryLimits = dict[str, int | None]
"""Bytes by GPU uuid; None where none is set."""


def default_memory(
    said: Limits, asked: Sequence[Device] | None, *, protocol: str
) -> tuple[MemoryLimits | None, Reason | None]:
    """What servers that are started later give a client at most, and why that is not known of every device.

    The daemon keeps a limit for a uuid and one for an ordinal apart, and goes by the one that was set last: where they
    differ nothing tells which that is. One that is set for an ordinal may be of any device whose ordinal is not known.
    """
    if protocol == "2" and asked is None:
        return None, Reason.NOT_RECORDED
    if asked is None or said.memory is None:
        return None, Reason.NOT_SUPPORTED
    found: MemoryLimits = {}
    reason = None
    astray = set_for_an_unknown_device(said, asked)
    for device in asked:
        amounts = {said.memory[device.uuid], said.memory.get(str(device.ordinal))} - {None}
        if len(amounts) > 1 or (device.ordinal is None and astray - amounts):
            reason = Reason.IDENTITY_AMBIGUOUS
        else:
            found[device.uuid] = next(iter(amounts), None)
    return found, reason


def set_for_an_unknown_device(said: Limits, asked: Sequence[Device] | None) -> set[int]:
    """The amounts that are set for an ordinal while there are devices whose ordinal is not known."""
    if asked is None or said.memory is None or all(device.ordinal is not None for device in asked):
        return set()
    names = {device.uuid for device in asked} | {str(device.ordinal) for device in asked}
    return {amount for name, amount in said.memory.items() if name not in names and amount is not None}


def of_a_server(reply: ServerReply | None, *, named: bool) -> tuple[Limits, dict[str, Reason]]:
    """What a server gives a client at most, and what of it is not known. `named`: it is one of protocol 3."""
    limits = reply.limits if reply and reply.limits else Limits(None, None)
    if named:
        reason = Reason.NOT_SUPPORTED  # what is printed where a namespace has no limit is not documented
    elif reply is None or reply.limits is None:
        reason = Reason.NOT_RECORDED
    else:
        reason = Reason.SERVER_VANISHED if reply.state is None else Reason.NOT_SUPPORTED
    unknown = {"active_thread_percentage": limits.active_thread_percentage, "memory_limits": limits.memory}
    return limits, {name: reason for name, value in unknown.items() if value is None}
