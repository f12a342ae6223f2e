"""What a GPU that MIG has partitioned is divided into, in words: nothing is measured there, and why."""

from __future__ import annotations

from collections.abc import Iterator

from mpswatch.documents import MigDevice, PollSnapshot


def partitioned(snapshot: PollSnapshot) -> Iterator[str]:
    """A line for each partitioned GPU, with its instances as far as they are known."""
    for look in snapshot.gpus.value or ():
        gpu = look.gpu
        if gpu.mig_enabled:
            if gpu.mig_devices is None:
                divided = f"its instances unknown ({gpu.unknown.get('mig_devices', 'not_recorded')})"
            else:
                divided = ", ".join(map(_in_words, gpu.mig_devices)) or "no instance is made"
            yield f"{gpu.uuid} is partitioned by MIG, where a cap means something else, and left alone: {divided}"


def _in_words(device: MigDevice) -> str:
    """`MIG-41b3… (1g.18gb, 16 SMs, 16.0 GiB)`; without a uuid its numbers within the GPU."""
    number = f"GPU instance {_or(device.gpu_instance_id)}, compute instance {_or(device.compute_instance_id)}"
    told = (
        device.profile,
        None if device.sm_count is None else f"{device.sm_count} SMs",
        None if device.memory_total_bytes is None else f"{device.memory_total_bytes / (1 << 30):.1f} GiB",
    )
    known = ", ".join(words for words in told if words is not None)
    return (device.uuid or number) + (f" ({known})" if known else "")


def _or(value: int | None) -> str:
    return "?" if value is None else str(value)
