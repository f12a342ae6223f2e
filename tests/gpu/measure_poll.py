"""CPU and wall time of one poll, its child programs included, beside the floor of the same questions asked bare.

usage: measure_poll.py PIPE_DIRECTORY LOOKS SNAPSHOT_FILE

Prints one JSON object. The floor: one connection of the control program with the poll's own commands, NVML's two
process lists, and one read of /proc/PID/stat a process, in the same run, by turns.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pynvml

from mpswatch.documents import to_json
from mpswatch.gpu import open_sources
from mpswatch.poll import DaemonAddress, Poller
from mpswatch.proc import Processes


def cpu() -> float:
    used = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    busy, began = cpu(), time.monotonic()
    work()
    return cpu() - busy, time.monotonic() - began


def floor(pipe: Path, server: int) -> None:
    asked = "get_server_list", "get_default_active_thread_percentage", f"get_client_list {server}"
    commands = "\n".join([*asked, f"get_server_status {server}", "ps", ""])
    environment = os.environ | {"CUDA_MPS_PIPE_DIRECTORY": str(pipe)}
    subprocess.run(
        ["nvidia-cuda-mps-control"], input=commands.encode(), capture_output=True, env=environment, check=True
    )
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlDeviceGetMPSComputeRunningProcesses(handle)
    for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
        Path(f"/proc/{process.pid}/stat").read_bytes()


def figures(rows: list[tuple[float, float]]) -> dict[str, float]:
    return {
        "cpu_ms_mean": round(1e3 * statistics.mean(row[0] for row in rows), 3),
        "cpu_ms_median": round(1e3 * statistics.median(row[0] for row in rows), 3),
        "wall_ms_median": round(1e3 * statistics.median(row[1] for row in rows), 3),
    }


def main() -> None:
    pipe, looks, kept = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    poller = Poller(
        host="h200",
        daemons=[DaemonAddress(name="h200", pipe_directory=pipe, log_directory=None)],
        control_program="nvidia-cuda-mps-control",
        sources=open_sources("auto", nvidia_smi="nvidia-smi", deadline=5.0, simulated=False),
        processes=Processes(),
        mps_deadline=5.0,
        gpu_deadline=5.0,
    )
    pynvml.nvmlInit()
    for _ in range(3):
        snapshot = poller.look()
    servers = snapshot.daemons[0].servers.value or ()
    polls, floors = [], []
    for _ in range(looks):
        polls.append(timed(poller.look))
        floors.append(timed(lambda: floor(pipe, servers[0].pid)))
    snapshot = poller.look()
    kept.write_bytes(to_json(snapshot, indent=2))
    print(
        json.dumps(
            {
                "looks": looks,
                "poll": figures(polls),
                "floor": figures(floors),
                "tenants": Counter(tenant.kind for tenant in snapshot.tenants.value or ()),
                "sources": [
                    (look.source, look.success, look.reason, round(1e3 * look.duration_seconds, 2))
                    for look in snapshot.sources
                ],
            }
        )
    )


if __name__ == "__main__":
    main()
