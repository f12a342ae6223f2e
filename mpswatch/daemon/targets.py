"""Which GPU is measured under which control daemon. Pure."""

from __future__ import annotations

from mpswatch.daemon.events import Target
from mpswatch.documents import PollSnapshot


def targets(snapshot: PollSnapshot) -> tuple[Target, ...]:
    """Every pair to sweep, by what one look showed.

    A server has a context on each GPU that it serves, so where the driver's lists show it, that is where its
    daemon is measured. A daemon without a server that is seen is paired with every GPU without MIG: the preflight
    decides. With no GPU known the pair stands with an empty uuid, so that its refusal is recorded.
    """
    gpus = [look.gpu for look in snapshot.gpus.value or ()]
    usable = [gpu.uuid for gpu in gpus if not gpu.mig_enabled] or [gpu.uuid for gpu in gpus] or [""]
    found: list[Target] = []
    for daemon in snapshot.daemons:
        served = {
            tenant.gpu_uuid
            for tenant in snapshot.tenants.value or ()
            if tenant.kind == "server" and tenant.daemon == daemon.name and tenant.gpu_uuid is not None
        }
        found += [Target(daemon.name, uuid) for uuid in usable if not served or uuid in served]
    return tuple(found)
