"""What one poll costs, by source, beside the floor and nvitop-exporter's collection; and what NVML costs to hold.

usage: bench_poll.py poll PIPE_DIRECTORY LOOKS [--rehearsal CONTROL NVIDIA_SMI]
       bench_poll.py nvitop LOOKS
       bench_poll.py memory

Prints one JSON object. The floor is asked by turns with the poll: one connection of the control program with the
poll's own commands, NVML's two process lists, the names, and one read of /proc/PID/stat a process.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))


def cpu() -> float:
    used = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    busy, began = cpu(), time.monotonic()
    work()
    return cpu() - busy, time.monotonic() - began


def figures(rows: list[tuple[float, float]]) -> dict[str, float]:
    busy = sorted(row[0] for row in rows)
    return {
        "cpu_ms_mean": round(1e3 * statistics.mean(busy), 3),
        "cpu_ms_median": round(1e3 * statistics.median(busy), 3),
        "cpu_ms_quarters": [round(1e3 * busy[len(busy) * n // 4], 3) for n in (1, 3)],
        "wall_ms_median": round(1e3 * statistics.median(row[1] for row in rows), 3),
    }


def floor(pipe: Path, control: str, server: int, driver: bool) -> None:
    asked = "get_server_list", "get_default_active_thread_percentage", f"get_client_list {server}"
    commands = "\n".join([*asked, f"get_server_status {server}", "ps", ""])
    environment = os.environ | {"CUDA_MPS_PIPE_DIRECTORY": str(pipe)}
    said = subprocess.run([control], input=commands.encode(), capture_output=True, env=environment, check=True).stdout
    if driver:
        import pynvml

        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        pynvml.nvmlDeviceGetMPSComputeRunningProcesses(handle)
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
            with contextlib.suppress(Exception):
                pynvml.nvmlSystemGetProcessName(process.pid)
            Path(f"/proc/{process.pid}/stat").read_bytes()
    else:
        for row in said.splitlines():
            if re.fullmatch(rb"\d+", row):
                Path(f"/proc/{row.decode()}/stat").read_bytes()


def poll(pipe: Path, looks: int, rehearsal: list[str] | None) -> dict[str, object]:
    from mpswatch import mps
    from mpswatch.gpu import open_sources
    from mpswatch.identity import known
    from mpswatch.poll import DaemonAddress, Poller
    from mpswatch.proc import Processes

    control, smi = rehearsal or ["nvidia-cuda-mps-control", "nvidia-smi"]
    driver = rehearsal is None
    processes = Processes()
    sources = open_sources("auto" if driver else "nvidia-smi", nvidia_smi=smi, deadline=5.0, simulated=not driver)

    def poller() -> Poller:
        return Poller(
            host="bench",
            daemons=[DaemonAddress(name="bench", pipe_directory=pipe)],
            control_program=control,
            sources=sources,
            processes=processes,
            mps_deadline=5.0,
            gpu_deadline=5.0,
        )

    found: dict[str, object] = {"looks": looks}
    watch = poller()
    for _ in range(3):
        snapshot = watch.look()
    servers = snapshot.daemons[0].servers.value or ()
    tenants = snapshot.tenants.value or ()
    found["tenants"] = Counter(tenant.kind for tenant in tenants)
    found["processes"] = len(tenants)
    if not servers:
        return found | {"error": f"no server: {snapshot.daemons[0]} {snapshot.sources}"}
    pids = sorted({tenant.pid for tenant in tenants})
    gc.collect()
    gc.freeze()
    rows: dict[str, list[tuple[float, float]]] = {}
    for _ in range(looks):
        rows.setdefault("poll_young", []).append(timed(watch.look))
        rows.setdefault("floor_young", []).append(timed(lambda: floor(pipe, control, servers[0].pid, driver)))
    # Processes that started within the last minute have their cgroup read at each look, later ones do not.
    known.YOUNG = 0.0
    watch = poller()
    watch.look()
    for _ in range(looks):
        rows.setdefault("poll", []).append(timed(watch.look))
        rows.setdefault("floor", []).append(timed(lambda: floor(pipe, control, servers[0].pid, driver)))
    before = processes.identities(pids)

    def daemon(contexts: bool = True) -> object:
        return mps.look(
            name="bench",
            pipe_directory=pipe,
            known_servers=[servers[0].pid],
            program=control,
            deadline=5.0,
            processes=processes,
            with_contexts=contexts,
        )

    parts: dict[str, Callable[[], object]] = {
        "mps": daemon,
        "mps_without_ps": lambda: daemon(contexts=False),
        "gpu": sources[0].look,
        "gpu_conditions": lambda: sources[0].conditions(snapshot.gpus.value[0].gpu.uuid),  # type: ignore[index]
        "proc": lambda: processes.identities(pids, before),
        "flock_holders": lambda: processes.flock_holders(pipe),
    }
    if driver:
        parts |= driver_parts()
    for _ in range(looks):
        for name, work in parts.items():
            with contextlib.suppress(Exception):
                rows.setdefault("part " + name, []).append(timed(work))
    return found | {name: figures(row) for name, row in rows.items()}


def driver_parts() -> dict[str, Callable[[], object]]:
    import pynvml

    from mpswatch.gpu import nvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    found: dict[str, Callable[[], object]] = {"nvml both lists and names": lambda: nvml.process_rows(handle, None)}
    for name, ask in nvml.FIELDS.items():
        found[f"nvml {name}"] = lambda ask=ask: ask(handle)
    found["nvml mig"] = lambda: nvml.mig_enabled(handle)
    found["nvml compute mode"] = lambda: nvml.compute_mode(handle)
    found["nvml two lists bare"] = lambda: (
        pynvml.nvmlDeviceGetComputeRunningProcesses(handle),
        pynvml.nvmlDeviceGetMPSComputeRunningProcesses(handle),
    )
    return found


def nvitop(looks: int) -> dict[str, object]:
    """nvitop-exporter's own collection of one round: host and devices, as its loop does it."""
    from nvitop import Device
    from nvitop_exporter.exporter import PrometheusExporter
    from prometheus_client import REGISTRY, generate_latest

    devices = Device.all()
    exporter = PrometheusExporter(devices, hostname="bench", interval=1.0)

    def collect() -> None:
        exporter.update_host()
        for device in devices:
            exporter.update_device(device)

    for _ in range(3):
        collect()
    gc.collect()
    gc.freeze()
    rows, renders = [], []
    for _ in range(looks):
        rows.append(timed(collect))
        renders.append(timed(lambda: generate_latest(REGISTRY)))
    series = sum(1 for line in generate_latest(REGISTRY).splitlines() if line and not line.startswith(b"#"))
    return {"looks": looks, "collection": figures(rows), "render": figures(renders), "series": series}


def resident() -> dict[str, float]:
    text = Path("/proc/self/smaps_rollup").read_text()
    kib = {key: int(text.split(f"\n{key}:")[1].split()[0]) for key in ("Rss", "Anonymous", "AnonHugePages")}
    return {key: round(number / 1024, 2) for key, number in kib.items()}


def memory() -> dict[str, object]:
    """Resident size at each step from a bare interpreter to an open library."""
    steps: dict[str, object] = {"interpreter": resident()}
    import pynvml

    steps["pynvml imported"] = resident()
    pynvml.nvmlInit()
    steps["nvmlInit"] = resident()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    for _ in range(5):
        pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        pynvml.nvmlDeviceGetMPSComputeRunningProcesses(handle)
    steps["lists"] = resident()
    ctypes.CDLL(None).malloc_trim(0)
    steps["trimmed"] = resident()
    steps["by file, KiB"] = mapped(Path("/proc/self/smaps").read_text())
    return steps


def mapped(smaps: str, least: int = 200) -> dict[str, int]:
    """Resident KiB by what is mapped, largest first."""
    found: Counter[str] = Counter()
    name = ""
    for line in smaps.splitlines():
        if heading := re.match(r"[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+\s*(.*)", line):
            name = heading[1] or "anonymous"
        elif line.startswith("Rss:"):
            found[name] += int(line.split()[1])
    return {name: kib for name, kib in found.most_common() if kib >= least}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("poll", "nvitop", "memory"))
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--rehearsal", nargs=2)
    options = parser.parse_args()
    if options.what == "poll":
        found = poll(Path(options.arguments[0]), int(options.arguments[1]), options.rehearsal)
    elif options.what == "nvitop":
        found = nvitop(int(options.arguments[0]))
    else:
        found = memory()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
