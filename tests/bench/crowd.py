"""A stack that costs next to nothing itself, so that a poll's own cost shows: processes that sleep, a control program
that is a shell script with the recorded kind of reply, and a source of GPU facts without a driver.

The rehearsal stack answers by programs that take thirty times what the real ones do. Here the replies are as long and
the processes as real, and the rows go through the same code as NVML's.
"""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mpswatch.documents import Conditions, Gpu, GpuLook
from mpswatch.gpu import source
from mpswatch.gpu.source import Row
from mpswatch.mps.asking import now
from mpswatch.poll import DaemonAddress, Poller
from mpswatch.proc import Processes

UUID = "GPU-00000000-0000-0000-0000-000000000001"
FOREIGN_OF_46 = 6

CONTROL = """#!/bin/sh
while read -r command; do
case $command in
get_server_list) echo {server};;
get_default_active*|get_active*) echo 100.0;;
get_client_list*) echo '{clients}';;
get_server_status*) echo ACTIVE;;
ps) echo '{table}';;
esac
done
"""


class Rows:
    """A source of GPU facts with fixed rows, joined as the driver's are."""

    name = "nvml"

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows
        self._gpu = Gpu(uuid=UUID, index=0, name="bench", memory_total_bytes=150 << 30, sm_count=132)

    def look(self) -> tuple[GpuLook, ...]:
        processes = source.processes_known(
            source.merged(self._rows), source="nvml", state="measured", evidence={"basis": "rows"}, blind=False
        )
        return (GpuLook(gpu=self._gpu, processes=processes, conditions=self.conditions(UUID)),)

    def conditions(self, uuid: str) -> Conditions:  # noqa: ARG002 -- there is one
        return Conditions(source="nvml", measured_at=now(), sm_clock_mhz=1980, power_watts=120.0)


@dataclass(frozen=True)
class Crowd:
    """`pids` are on the GPU: the server, then the managed, then the foreign."""

    pids: tuple[int, ...]
    managed: tuple[int, ...]
    pipe_directory: Path
    program: Path
    rows: list[Row]

    def poller(self) -> Poller:
        return Poller(
            host="bench",
            daemons=[DaemonAddress(name="bench", pipe_directory=self.pipe_directory)],
            control_program=str(self.program),
            sources=[Rows(self.rows)],
            processes=Processes(),
            mps_deadline=5.0,
            gpu_deadline=5.0,
        )


@contextmanager
def crowd(number: int, directory: Path) -> Iterator[Crowd]:
    """`number` processes beside a server, six of 46 of them foreign; all end with the block."""
    directory.mkdir(parents=True, exist_ok=True)
    pids = tuple(_sleeper("python3" if n else "nvidia-cuda-mps-server") for n in range(number + 1))
    try:
        foreign = number * FOREIGN_OF_46 // 46
        server, managed = pids[0], pids[1 : number + 1 - foreign]
        table = ["PID       ID    SERVER    DEVICE             NAMESPACE      COMMAND"]
        table += [
            f"{pid:<9} {n:<5} {server:<9} GPU-00000000-0000  4026531836     python3 service.py"
            for n, pid in enumerate(managed, 1)
        ]
        program = directory / "nvidia-cuda-mps-control"
        clients = "\n".join(map(str, managed))
        program.write_text(CONTROL.format(server=server, clients=clients, table="\n".join(table)))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        rows = [
            Row(
                pid=pid,
                used_memory_bytes=600 << 20,
                memory_unknown_reason=None,
                instance=(0, 0),
                mps_client=pid in managed,
                name="python3",
            )
            for pid in pids
        ]
        yield Crowd(pids, managed, directory, program, rows)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _sleeper(command: str) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            Path("/proc/self/comm").write_text(command)
            signal.pause()
        finally:
            os._exit(0)
    return pid
