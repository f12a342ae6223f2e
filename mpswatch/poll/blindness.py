"""Process lists that cannot be believed: they lack everybody whom a control daemon says is there. Pure.

The driver lists a server on each GPU that it serves, and a client where its context is (recording: two-gpus). From
where it tells nothing it says so by an empty list, without an error: not only inside a pid namespace, which the
sources see for themselves. One that is missing has just joined or left; all of them and their servers are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from mpswatch.documents import DaemonLook, Envelope, GpuLook, GpuProcess, Reason
from mpswatch.poll.looks import envelope
from mpswatch.tenants import numbers_of_others


def sighted(daemons: Sequence[DaemonLook], gpus: Sequence[GpuLook]) -> tuple[GpuLook, ...]:
    """`gpus`, of which a list that is blind is unknown, reason `process_list_blind`."""
    servers: set[int] = set()
    by_gpu: dict[str, set[int]] = {look.gpu.uuid: set() for look in gpus}
    somewhere: set[int] = set()
    for server in (server for look in daemons for server in look.servers.value or ()):
        if numbers_of_others(server) is not None:
            continue
        servers.add(server.pid)
        devices = {context.pid: context.device for context in server.contexts or ()}
        for pid in server.clients or ():
            uuids = _matching(devices.get(pid), by_gpu)
            if len(uuids) == 1:
                by_gpu[uuids[0]].add(pid)
            elif uuids:
                somewhere.add(pid)
    nowhere = _lists_none(gpus, servers.union(somewhere, *by_gpu.values()))
    return tuple(
        _blind(look, len(expected))
        if (expected := by_gpu[look.gpu.uuid] or (somewhere if nowhere else set()))
        and _lists_none([look], servers | expected)
        else look
        for look in gpus
    )


def _matching(device: str | None, uuids: Iterable[str]) -> list[str]:
    """The GPUs that `ps` may mean by `device`, which is cut short: any where it names none, or a MIG instance.

    None of them: a GPU that is not to be seen from here.
    """
    if device is None or not device.startswith("GPU-"):
        return list(uuids)
    return [uuid for uuid in uuids if uuid.startswith(device.rstrip("."))]


def _lists_none(gpus: Sequence[GpuLook], pids: set[int]) -> bool:
    """Whether each of these lists is known and has none of `pids`."""
    return all(
        look.processes.value is not None and pids.isdisjoint(process.pid for process in look.processes.value)
        for look in gpus
    )


def _blind(look: GpuLook, clients: int) -> GpuLook:
    listed = look.processes
    detail = f"the list has neither the MPS server nor any of {clients} clients that the control daemon says are there"
    unknown: Envelope[tuple[GpuProcess, ...]] = envelope(
        None,
        "unknown",
        source=listed.source,
        at=listed.measured_at,
        evidence={**listed.evidence, "detail": detail},
        reason=Reason.PROCESS_LIST_BLIND,
    )
    return msgspec.structs.replace(look, processes=unknown)
