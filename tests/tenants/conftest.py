from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mpswatch.documents import (
    Conditions,
    DaemonLook,
    Envelope,
    Gpu,
    GpuLook,
    GpuProcess,
    PollSnapshot,
    Reason,
    ServerLook,
)
from mpswatch.proc import Identity
from mpswatch.tenants import tell_apart

NOW = datetime(2026, 11, 30, 16, 0, tzinfo=UTC)
UUID = "GPU-d5186d3a-2601-5eeb-c6aa-b59b83ed0aa6"


def envelope(value, reason=None):
    return Envelope(
        value=value,
        state="unknown" if value is None else "measured",
        source="test",
        measured_at=NOW,
        evidence={},
        unknown_reason=reason,
    )


class Scene:
    """Looks made by hand: what the three views say, in few words."""

    now = NOW
    uuid = UUID

    def server(self, pid=633, clients=(), *, ticks=4000, state="ACTIVE", **more):
        unknown = {} if clients is not None else {"clients": Reason.SERVER_VANISHED}
        return ServerLook(pid=pid, start_ticks=ticks, clients=clients, server_state=state, unknown=unknown, **more)

    def daemon(self, *servers, name="stack", up=True, reason=None, session=None, unknown=None):
        return DaemonLook(
            name=name,
            pipe_directory=f"/tmp/{name}",
            up=up,
            up_reason=reason,
            servers=envelope(None if reason else servers, reason),
            our_session=session,
            unknown=unknown or {},
        )

    def row(self, pid, mib=100, *, mps=False, name="python3"):
        return GpuProcess(
            pid=pid,
            used_memory_bytes=None if mib is None else mib << 20,
            memory_unknown_reason=Reason.NOT_SUPPORTED if mib is None else None,
            mps_client=mps,
            name=name,
        )

    def gpu(self, *rows, uuid=UUID, index=0, reason=None):
        return GpuLook(
            gpu=Gpu(uuid=uuid, index=index, name="NVIDIA H200"),
            processes=envelope(None if reason else rows, reason),
            conditions=Conditions(measured_at=NOW, source="test"),
        )

    def who(self, *pids, session=1, command="python3", ticks=5000, uid=0):
        return {pid: Identity(pid, ticks, session, uid, command, "S") for pid in pids}

    def join(self, daemons, gpus, identities, previous=(), **more):
        return tell_apart(daemons=daemons, gpus=gpus, identities=identities, previous=previous, now=NOW, **more)

    def kinds(self, *arguments, **more):
        tenants, _ = self.join(*arguments, **more)
        return {tenant.pid: tenant.kind for tenant in tenants}

    def snapshot(self, daemons=(), gpus=(), identities=None, previous=(), *, gpus_reason=None):
        tenants, disagreements = self.join(daemons, gpus, identities or {}, previous)
        return PollSnapshot(
            host="h",
            started_at=NOW,
            finished_at=NOW,
            simulated=False,
            daemons=tuple(daemons),
            gpus=envelope(None if gpus_reason else tuple(gpus), gpus_reason),
            tenants=envelope(None if gpus_reason else tenants, gpus_reason),
            disagreements=disagreements,
            sources=(),
        )


@pytest.fixture
def scene():
    return Scene()
