"""Which GPU is measured under which control daemon. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from mpswatch.daemon.events import Target
from mpswatch.documents import Gpu, PollSnapshot


def targets(snapshot: PollSnapshot) -> tuple[Target, ...]:
    """Every pair to sweep, by what one look showed.

    A server has a context on each GPU that it serves, so where the driver's lists show it, that is where its
    daemon is measured. A daemon without a server that is seen is paired with every GPU without MIG: the preflight
    decides, on those of the daemon's CUDA_VISIBLE_DEVICES where that is known. With no GPU known the pair
    stands with an empty uuid, so that its refusal is recorded.
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
        may = _visible(gpus, daemon.visible_devices)
        found += [
            Target(daemon.name, uuid) for uuid in usable if (uuid in served if served else may is None or uuid in may)
        ]
    return tuple(found)


def _visible(gpus: Sequence[Gpu], words: tuple[str, ...] | None) -> set[str] | None:
    """The GPUs that CUDA_VISIBLE_DEVICES names, by index or beginning of the UUID; None where it limits nothing."""
    if words is None:
        return None
    named = {gpu.uuid for gpu in gpus for word in words if word == str(gpu.index) or gpu.uuid.startswith(word)}
    return named or None
